"""Signatures read from the source."""

from __future__ import annotations

import pytest

import slipstream as ss
from slipstream.core.api.cuda.signatures import FLOATING, INTEGER, POINTER, TRUTH, Reader
from slipstream.core.api.cuda.tokens import SourceError


def only(text: str, *options: str):
    kernels = Reader(text, options).kernels()
    assert len(kernels) == 1
    return kernels[0]


def of_parameter(text: str, before: str = "", *options: str):
    return only(f"{before}\n__global__ void f({text}) {{}}", *options).parameters[0]


@pytest.mark.parametrize(("text", "dtype", "constant"), [
    ("float* x", ss.float32, False),
    ("const float* x", ss.float32, True),
    ("float const * __restrict__ x", ss.float32, True),
    ("float* const x", ss.float32, False),
    ("const double *x", ss.float64, True),
    ("__half* x", ss.float16, False),
    ("const __nv_bfloat16* x", ss.bfloat16, True),
    ("int* x", ss.int32, False),
    ("unsigned int* x", ss.int32, False),
    ("long long int* x", ss.int64, False),
    ("int64_t* x", ss.int64, False),
    ("signed char* x", ss.int8, False),
    ("unsigned char* x", ss.uint8, False),
    ("bool* x", ss.bool, False),
    ("short x[]", ss.int16, False),
    ("float4* x", ss.float32, False),
    ("cuFloatComplex* x", ss.complex64, False),
])
def test_pointers(text: str, dtype: ss.dtype, constant: bool) -> None:
    found = of_parameter(text)
    assert found.kind == POINTER
    assert found.name == "x"
    assert dtype in found.element.dtypes
    assert found.constant == constant


@pytest.mark.parametrize(("text", "kind", "size", "low"), [
    ("int n", INTEGER, 4, -(2**31)), ("unsigned n", INTEGER, 4, 0),
    ("const long long n", INTEGER, 8, -(2**63)),
    ("unsigned long long int n", INTEGER, 8, 0), ("short int n", INTEGER, 2, -(2**15)),
    ("uint8_t n", INTEGER, 1, 0), ("size_t n", INTEGER, 8, 0),
])
def test_integers(text: str, kind: str, size: int, low: int) -> None:
    found = of_parameter(text)
    assert (found.kind, found.element.size, found.limits()[0]) == (kind, size, low)


@pytest.mark.parametrize(("text", "kind", "size"), [
    ("float n", FLOATING, 4), ("const double n", FLOATING, 8), ("__half n", FLOATING, 2),
    ("bool n", TRUTH, 1),
])
def test_other_numbers(text: str, kind: str, size: int) -> None:
    found = of_parameter(text)
    assert (found.kind, found.element.size) == (kind, size)


def test_numbers_lie_at_multiples_of_their_size() -> None:
    found = only("__global__ void f(char a, double b, short c, int d, float* e, bool g) {}")
    assert [each.place for each in found.parameters] == [0, 8, 16, 20, 24, 32]
    assert found.nbytes == 33


@pytest.mark.parametrize("before", [
    "typedef double real;", "using real = double;", "#define real double",
    "typedef double wide; typedef wide real;",
])
def test_other_names_of_types(before: str) -> None:
    assert of_parameter("const real* x", before).element.dtypes == (ss.float64,)


def test_types_from_options() -> None:
    assert of_parameter("T* x", "", "-DT=float").element.dtypes == (ss.float32,)


def test_a_name_for_a_pointer_to_const() -> None:
    assert of_parameter("input x", "typedef const float* input;").constant


def test_what_stands_around_a_kernel() -> None:
    text = """
    // __global__ void comment(Unknown x) {}
    const char* words = "__global__ void text(Unknown x)";
    __device__ float helper(float x) { return x; }
    __global__ void __launch_bounds__(128, 2) first(const float* x, int n);
    __global__ void __launch_bounds__(128, 2) first(const float* x, int n) { }
    extern "C" __global__ void second(/* none */) { }
    namespace inner { static __global__ void third(void) { } }
    """
    kernels = Reader(text).kernels()
    assert [each.name for each in kernels] == ["first", "second", "third"]
    assert [len(each.parameters) for each in kernels] == [2, 0, 0]
    assert kernels[0].threads == 128


@pytest.mark.parametrize(("text", "words"), [
    ("Params p", "of type Params"), ("float** x", "pointer to pointers"), ("float& x", "reference"),
    ("float2 v", "of type float2"), ("void (*f)(int)", "function"), ("int n = 3", "default value"),
    ("std::vector<int> v", "template"),
])
def test_what_no_kernel_takes_is_shown_with_a_caret(text: str, words: str) -> None:
    with pytest.raises(SourceError) as caught:
        of_parameter(text)
    lines = str(caught.value).split("\n")
    assert words in lines[0]
    assert lines[1].endswith("line 2:")
    assert lines[3].index("^") == lines[2].index(text)


def test_templates_are_refused_with_the_mend() -> None:
    with pytest.raises(SourceError, match=r"-DT=float"):
        only("template <class T> __global__ void f(T* x) {}")


CONDITIONS = [
    ("#define T double", ss.float64), ("#ifdef BIG\n#define T double\n#else\n#define T float\n"
                                       "#endif", ss.float32),
    ("#define BIG\n#ifdef BIG\n#define T double\n#else\n#define T float\n#endif", ss.float64),
    ("#ifndef T\n#define T float\n#endif", ss.float32),
    ("#if 0\n#define T double\n#elif defined(BIG)\n#define T int\n#else\n#define T float\n#endif",
     ss.float32),
    ("#if !defined(BIG) // by default\n#define T double\n#elif 1\n#define T float\n#endif",
     ss.float64),
    ("#define T float\n#undef T\n#define T double", ss.float64),
    ("#if __CUDA_ARCH__ > 700\n#define T float\n#else\n#define T float\n#endif", ss.float32),
]


@pytest.mark.parametrize(("before", "dtype"), CONDITIONS)
def test_a_type_is_what_its_conditions_say(before: str, dtype: object) -> None:
    assert of_parameter("T* x", before).element.dtypes == (dtype,)


def test_what_options_define_decides() -> None:
    before = ("#ifndef T\n#define T float\n#endif\n"
              "#ifdef WIDE\n#define N double\n#else\n#define N T\n#endif")
    assert of_parameter("T* x", before, "-DT=int").element.dtypes == (ss.int32,)
    assert of_parameter("N* x", before, "-DWIDE").element.dtypes == (ss.float64,)
    assert of_parameter("N* x", before, "-DT=int").element.dtypes == (ss.int32,)


def test_a_name_means_what_it_did_where_a_kernel_stands() -> None:
    kernels = Reader("#define T float\n__global__ void f(T* x) {}\n#undef T\n#define T double\n"
                     "__global__ void g(T* x) {}\n#define T int").kernels()
    assert [each.parameters[0].element.dtypes for each in kernels] == [
        (ss.float32,), (ss.float64,)]


def test_what_only_the_compiler_decides_is_refused() -> None:
    before = "#if __CUDA_ARCH__ > 700\n#define T float\n#else\n#define T double\n#endif"
    with pytest.raises(SourceError, match="only the compiler can decide"):
        of_parameter("T* x", before)
    assert of_parameter("int* x", before).element.dtypes == (ss.int32,)
    with pytest.raises(SourceError, match="two kernels f whose parameters differ"):
        Reader("#if __CUDA_ARCH__ > 1\n__global__ void f(float* x) {}\n#else\n"
               "__global__ void f(double* x) {}\n#endif").kernels()


def test_code_that_is_left_out_has_no_kernels() -> None:
    assert only("#if 0\n__global__ void f(Unknown x) {}\n#endif\n"
                "__global__ void f(float* x) {}").name == "f"


@pytest.mark.parametrize(("bound", "threads"), [
    ("128", 128), ("N", 256), ("N, 2", 256), ("2*N", 0), ("512/4", 0), ("(256)", 0)])
def test_bounds_that_are_no_number_say_nothing(bound: str, threads: int) -> None:
    assert only(f"#define N 256\n__global__ void __launch_bounds__({bound}) f(float* x) {{}}"
                ).threads == threads


SPELLED = [
    ("#define T\tfloat", (), ss.float32), ("#define\tT\tfloat", (), ss.float32),
    ("#ifdef __CUDACC__\n#define R __restrict__\n#else\n#define R\n#endif\n#define T float* R",
     (), ss.float32),
    ("#define WIDE 0\n#if WIDE\n#define T double\n#else\n#define T float\n#endif", (), ss.float32),
    ("#if WIDE\n#define T double\n#else\n#define T float\n#endif", ("-DWIDE=1",), ss.float64),
    ("#if WIDE\n#define T double\n#else\n#define T float\n#endif", ("-DWIDE",), ss.float64),
    ("#if BITS == 64\n#define T double\n#else\n#define T float\n#endif", ("-DBITS=64",),
     ss.float64),
    ("#if(defined(A) && !defined(B))\n#define T double\n#else\n#define T float\n#endif", ("-DA",),
     ss.float64),
    ("#if WIDE\ntypedef double T;\n#else\ntypedef float T;\n#endif", ("-DWIDE=1",), ss.float64),
    ("#define F(x) (x)\n#define T \\\n  float", (), ss.float32),
]


@pytest.mark.parametrize(("before", "options", "dtype"), SPELLED)
def test_conditions_as_people_write_them(before: str, options: tuple[str, ...],
                                         dtype: object) -> None:
    pointer = "" if "T float*" in before else "*"
    assert of_parameter(f"T{pointer} x", before, *options).element.dtypes == (dtype,)


def test_what_a_header_may_define_is_not_guessed() -> None:
    with pytest.raises(SourceError, match="only the compiler can decide"):
        of_parameter("T* x", '#include "cfg.h"\n#ifdef WIDE\n#define T double\n#else\n'
                     "#define T float\n#endif")


def test_a_macro_of_several_parameters_is_refused() -> None:
    with pytest.raises(SourceError, match="a macro of several parameters"):
        Reader("#define ALL float* x, int n\n__global__ void f(ALL) {}").kernels()
