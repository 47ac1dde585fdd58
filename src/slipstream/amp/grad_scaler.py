"""GradScaler: scales the loss so that gradients in narrow types do not vanish."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import slipstream as ss
from slipstream.core.api.lists import unscale
from slipstream.core.api.updates import apply_update

READY, UNSCALED, STEPPED = range(3)


def moved(at: Any) -> tuple[Any, ...]:
    """The scale and the count of good steps after a step: ``found`` is 0 after a good one.

    A scale that would not be finite stays what it is.
    """
    bad = at.found > 0
    count = at.tracker + 1
    due = count >= at.interval
    larger = at.scale * at.growth
    grown = larger.where(due.logical_and(larger.isfinite()), at.scale)
    return (at.scale * at.backoff).where(bad, grown), (count * 0).where(bad.logical_or(due), count)


def unscaled(gradients: list[ss.Tensor], inverse: ss.Tensor) -> ss.Tensor:
    """Multiply gradients by ``inverse`` in place; 1 where one of them is not finite, else 0.

    The result is on the device of the first; nothing waits but copies between devices.
    """
    kinds: dict[Any, list[ss.Tensor]] = {}
    for gradient in gradients:
        kinds.setdefault((gradient.device, gradient.dtype), []).append(gradient)
    founds: dict[Any, ss.Tensor] = {}
    for (device, _), members in kinds.items():
        if device not in founds:
            founds[device] = ss.zeros((), dtype=ss.float32, device=device)
        mine = inverse.to(device)
        if unscale(members, mine, founds[device]):
            continue
        for gradient in members:
            bad = ss.isfinite(gradient).all().logical_not().to(ss.float32)
            founds[device] = ss.maximum(founds[device], bad)
        ss._foreach_mul_(members, mine)
    first, *others = founds.values()
    for other in others:
        first = ss.maximum(first, other.to(first.device))
    return first


def _is_fused(optimizer: Any) -> bool:
    """Whether a step was asked for that does the scaler's work itself."""
    return (getattr(optimizer, "_step_supports_amp_scaling", False)
            and any(group.get("fused") for group in optimizer.param_groups))


class GradScaler:
    """Multiplies the loss by a scale, and steps an optimizer only where gradients stay finite.

    The scale falls by ``backoff_factor`` after a step that was left out, and grows by
    ``growth_factor`` after ``growth_interval`` steps that were not.  Scale, count and what was
    found stay on the device; no step waits, but for optimizers that cannot leave out a step there.
    ``enabled=False``: does nothing, as where ``device`` is "cuda" and there is none.
    """

    # How many frames above a warning the user's line is.
    _depth = 2

    def __init__(self, device: str = "cuda", init_scale: float = 2.0 ** 16,
                 growth_factor: float = 2.0, backoff_factor: float = 0.5,
                 growth_interval: int = 2000, enabled: bool = True) -> None:
        if enabled and not growth_factor > 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if enabled and not backoff_factor < 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._device = device
        if enabled and device == "cuda" and not ss.cuda.is_available():
            warnings.warn("GradScaler: CUDA is not available; the scaler is disabled",
                          stacklevel=self._depth)
            enabled = False
        self._enabled = enabled
        self._init_scale = init_scale
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._init_growth_tracker = 0
        self._scale: ss.Tensor | None = None
        self._growth_tracker: ss.Tensor | None = None
        self._stages: dict[int, tuple[int, ss.Tensor | None]] = {}

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    def _scale_on(self, device: Any) -> ss.Tensor:
        if self._scale is None:
            self._scale = ss.full((), float(self._init_scale), dtype=ss.float32, device=device)
            self._growth_tracker = ss.full((), float(self._init_growth_tracker), dtype=ss.float32,
                                           device=device)
        return self._scale

    def scale(self, outputs: Any) -> Any:
        """A tensor, or those in an iterable, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, ss.Tensor):
            return outputs * self._scale_on(outputs.device).to(outputs.device)
        if isinstance(outputs, Iterable):
            made = map(self.scale, outputs)
            return type(outputs)(made) if isinstance(outputs, list | tuple) else made
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _gradients(self, optimizer: Any) -> list[ss.Tensor]:
        return [parameter.grad for group in optimizer.param_groups
                for parameter in group["params"] if parameter.grad is not None]

    def _stage(self, optimizer: Any) -> tuple[int, ss.Tensor | None]:
        return self._stages.get(id(optimizer), (READY, None))

    def _scale_for(self, name: str) -> ss.Tensor:
        """The scale, for the call of that name."""
        if self._scale is None:
            raise AssertionError(f"Attempted {name} but _scale is None.  This may indicate your "
                                 "script did not use scaler.scale(loss or outputs) earlier in the "
                                 "iteration.")
        return self._scale

    def unscale_(self, optimizer: Any) -> None:
        """Divide an optimizer's gradients by the scale.

        RuntimeError for a second time, ValueError for gradients in float16.
        """
        if self._enabled:
            self._unscale(optimizer, allow_fp16=False)

    def _unscale(self, optimizer: Any, allow_fp16: bool) -> None:
        scale = self._scale_for("unscale_")
        stage, _ = self._stage(optimizer)
        if stage == UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the "
                               "last update().")
        if stage == STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        gradients = self._gradients(optimizer)
        if not allow_fp16 and any(gradient.dtype == ss.float16 for gradient in gradients):
            raise ValueError("Attempting to unscale FP16 gradients.")
        found = None
        if gradients:
            with ss.no_grad():
                # Of a power of two this is exact.
                found = unscaled(gradients, scale.reciprocal())
        self._stages[id(optimizer)] = (UNSCALED, found)

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscale if that was not done, and step unless a gradient is not finite.

        Optimizers with ``_step_supports_amp_scaling`` get the finding as their ``found_inf``; for
        others, and where a closure is given, it is looked at, which waits.  Returns what the
        optimizer's step returns, None where the step was left out.  RuntimeError for a second step
        before update, AssertionError where no parameter has a gradient; fused optimizers take that,
        and gradients in float16.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._scale_for("step")
        stage, _ = self._stage(optimizer)
        if stage == STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        fused = _is_fused(optimizer)
        if stage == READY:
            self._unscale(optimizer, allow_fp16=fused)
        found = self._stage(optimizer)[1]
        if found is None:
            if not fused:
                raise AssertionError("No inf checks were recorded for this optimizer.")
            result = optimizer.step(*args, **kwargs)
        elif self._leaves_out_itself(optimizer, args):
            result = self._step_with(found, optimizer, args, kwargs)
        else:
            result = None if found.item() else optimizer.step(*args, **kwargs)
        self._stages[id(optimizer)] = (STEPPED, found)
        return result

    def _leaves_out_itself(self, optimizer: Any, args: Any) -> bool:
        """Whether the optimizer can be handed what was found.

        A closure would run for a step that is left out, as it does in PyTorch only for fused ones.
        """
        if not getattr(optimizer, "_step_supports_amp_scaling", False):
            return False
        return not args or _is_fused(optimizer)

    def _step_with(self, found: ss.Tensor, optimizer: Any, args: Any, kwargs: Any) -> Any:
        optimizer.found_inf = found
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del optimizer.found_inf

    def update(self, new_scale: Any = None) -> None:
        """Move the scale after a step, or set it.

        AssertionError where nothing was scaled before, or no step was taken.
        """
        if not self._enabled:
            return
        scale = self._scale_for("update")
        if isinstance(new_scale, ss.Tensor):
            scale.copy_(new_scale.reshape(()))
        elif new_scale is not None:
            scale.fill_(new_scale)
        else:
            found = [each for _, each in self._stages.values() if each is not None]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            self._move(scale, [each.to(scale.device, non_blocking=True) for each in found])
        self._stages = {}

    def _move(self, scale: ss.Tensor, found: list[ss.Tensor]) -> None:
        bad = found[0]
        for other in found[1:]:
            bad = ss.maximum(bad, other)
        apply_update(moved, {"scale": scale, "tracker": self._growth_tracker}, {"found": bad}, {
            "growth": self._growth_factor, "backoff": self._backoff_factor,
            "interval": self._growth_interval})

    # What it holds.

    def __getstate__(self) -> dict[str, Any]:
        if not self._enabled:
            return self.__dict__
        if self._stages:
            raise AssertionError("A GradScaler instance may only be pickled at the beginning of an "
                                 "iteration, or at the end after scaler.update().")
        return {**self.__dict__, "_init_scale": self.get_scale(), "_scale": None,
                "_init_growth_tracker": self._get_growth_tracker(), "_growth_tracker": None}

    def get_scale(self) -> float:
        """The scale, 1 where it is not enabled; waits for its device."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale.item()

    def get_growth_factor(self) -> float:
        """The factor by which the scale grows."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Set the factor by which the scale grows."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """The factor by which the scale falls."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set the factor by which the scale falls."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many good steps the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set after how many good steps the scale grows."""
        self._growth_interval = new_interval

    def _get_growth_tracker(self) -> int:
        """How many good steps there were since the scale last moved; waits."""
        if self._growth_tracker is None:
            return self._init_growth_tracker
        return int(self._growth_tracker.item())

    def state_dict(self) -> dict[str, Any]:
        """The scale and the factors, as PyTorch names them; empty where it is not enabled."""
        if not self._enabled:
            return {}
        return {"scale": self.get_scale(), "growth_factor": self._growth_factor,
                "backoff_factor": self._backoff_factor, "growth_interval": self._growth_interval,
                "_growth_tracker": self._get_growth_tracker()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state; RuntimeError for an empty one."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from "
                               "a disabled instance of GradScaler.")
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale.fill_(state_dict["scale"])
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._growth_tracker is not None:
            self._growth_tracker.fill_(state_dict["_growth_tracker"])
