"""Looking for the step of backward that first gives NaN."""

from __future__ import annotations

from slipstream.core.api.autograd import set_anomaly_check


class set_detect_anomaly:  # noqa: N801
    """Look for NaN in every gradient from now on, or until the end of the ``with`` block.

    Backward then raises RuntimeError that names the step and the line that recorded it.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.before = set_anomaly_check(mode and check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *failure: object) -> None:
        set_anomaly_check(self.before)


class detect_anomaly:  # noqa: N801
    """A scope in which backward raises RuntimeError at the first gradient that holds NaN."""

    def __init__(self, check_nan: bool = True) -> None:
        self.check_nan = check_nan
        self.before = False

    def __enter__(self) -> None:
        self.before = set_anomaly_check(self.check_nan)

    def __exit__(self, *failure: object) -> None:
        set_anomaly_check(self.before)
