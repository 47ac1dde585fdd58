/* The documented subset of PyTorch's C++ interface that load_inline offers; the tensors themselves
   live in Python and are reached through a table of functions. */
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define __host__
#define __device__
#define __forceinline__ inline
#define __restrict__ __restrict

namespace slip {

typedef int64_t handle;
enum kind : int64_t { NONE, TENSOR, INTEGER, NUMBER, TRUTH, TEXT, LIST, POINTER, UNSIGNED };

/* An argument or a result. */
struct value {
    int64_t kind = NONE;
    int64_t integer = 0;
    double number = 0;
    const char *text = nullptr;
    const value *items = nullptr;
};

/* What a tensor is; `device` is a card's index, -1 for the CPU. */
struct facts {
    void *data;
    int64_t numel, ndim, dtype, device, itemsize, contiguous;
    int64_t sizes[64], strides[64];
};

struct table {
    int (*describe)(handle, facts *);
    void (*release)(handle);
    int (*make)(const char *how, const int64_t *sizes, int64_t ndim, int64_t dtype, int64_t device,
                double fill, handle *made);
    int (*method)(const char *name, handle, const int64_t *numbers, int64_t count, handle *made);
    int (*launch)(const char *name, const int64_t *shape, const value *arguments, int64_t count);
    int (*wait)();
};
inline table calls;

/* Python holds the exception; the call ends. */
struct pending {};
inline void done(int status) {
    if (status) throw pending();
}
struct wrong_type : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace slip

namespace c10 {

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};
struct Half { uint16_t x; };
struct BFloat16 { uint16_t x; };
template <class T> using optional = std::optional<T>;
inline constexpr std::nullopt_t nullopt = std::nullopt;

/* The numbers are the places of dtypes in Slipstream's list. */
enum class ScalarType : int64_t {
    Bool, Byte, Char, Short, Int, Long, Half, BFloat16, Float, Double, ComplexFloat, ComplexDouble
};
inline const char *toString(ScalarType t) {
    static const char *const names[] = {"Bool", "Byte", "Char", "Short", "Int", "Long", "Half",
        "BFloat16", "Float", "Double", "ComplexFloat", "ComplexDouble"};
    return names[(int)t];
}
inline std::ostream &operator<<(std::ostream &out, ScalarType t) { return out << toString(t); }

enum class DeviceType : int64_t { CPU, CUDA };
struct Device {
    DeviceType kind = DeviceType::CPU;
    int64_t number = -1;
    Device() = default;
    Device(DeviceType kind, int64_t number = -1) : kind(kind), number(number) {}
    bool is_cuda() const { return kind == DeviceType::CUDA; }
    bool is_cpu() const { return kind == DeviceType::CPU; }
    DeviceType type() const { return kind; }
    int64_t index() const { return number; }
    bool operator==(const Device &o) const { return kind == o.kind && number == o.number; }
    bool operator!=(const Device &o) const { return !(*this == o); }
};
inline std::ostream &operator<<(std::ostream &out, const Device &d) {
    if (d.is_cpu()) return out << "cpu";
    return out << "cuda:" << d.number;
}

class IntArrayRef {
    std::vector<int64_t> held;
  public:
    IntArrayRef() = default;
    IntArrayRef(std::initializer_list<int64_t> v) : held(v) {}
    IntArrayRef(std::vector<int64_t> v) : held(std::move(v)) {}
    IntArrayRef(const int64_t *data, size_t count) : held(data, data + count) {}
    size_t size() const { return held.size(); }
    bool empty() const { return held.empty(); }
    const int64_t *data() const { return held.data(); }
    int64_t operator[](size_t i) const { return held.at(i); }
    int64_t front() const { return held.front(); }
    int64_t back() const { return held.back(); }
    auto begin() const { return held.begin(); }
    auto end() const { return held.end(); }
    std::vector<int64_t> vec() const { return held; }
    bool operator==(const IntArrayRef &o) const { return held == o.held; }
    bool operator!=(const IntArrayRef &o) const { return held != o.held; }
};
inline std::ostream &operator<<(std::ostream &out, const IntArrayRef &v) {
    out << "[";
    for (size_t i = 0; i < v.size(); i++) out << (i ? ", " : "") << v[i];
    return out << "]";
}

struct TensorOptions {
    int64_t type = -1, place = -1;
    TensorOptions() = default;
    TensorOptions(ScalarType t) : type((int64_t)t) {}
    TensorOptions(Device d) { *this = device(d); }
    TensorOptions dtype(ScalarType t) const {
        TensorOptions made = *this;
        made.type = (int64_t)t;
        return made;
    }
    TensorOptions device(Device d) const {
        TensorOptions made = *this;
        made.place = d.is_cpu() ? -1 : d.number < 0 ? -2 : d.number;
        return made;
    }
    TensorOptions device(DeviceType kind, int64_t number = -1) const {
        return device(Device(kind, number));
    }
    TensorOptions requires_grad(bool) const { return *this; }
};

}  // namespace c10

typedef c10::Half __half;
typedef c10::Half half;
typedef c10::BFloat16 __nv_bfloat16;
typedef c10::BFloat16 nv_bfloat16;

namespace slip {

inline void append(std::ostringstream &) {}
template <class A, class... B> void append(std::ostringstream &out, const A &a, const B &...b) {
    out << a;
    append(out, b...);
}
template <class... A> std::string joined(const A &...a) {
    std::ostringstream out;
    append(out, a...);
    return out.str();
}

template <class T> struct type_name { static constexpr const char *text = nullptr; };
#define SLIP_TYPE(T, code, name) \
    template <> struct type_name<T> { \
        static constexpr const char *text = name; \
        static constexpr c10::ScalarType scalar = c10::ScalarType::code; \
    };
SLIP_TYPE(bool, Bool, "bool")
SLIP_TYPE(uint8_t, Byte, "uint8")
SLIP_TYPE(int8_t, Char, "int8")
SLIP_TYPE(char, Char, "int8")
SLIP_TYPE(int16_t, Short, "int16")
SLIP_TYPE(int, Int, "int32")
SLIP_TYPE(long, Long, "int64")
SLIP_TYPE(long long, Long, "int64")
SLIP_TYPE(c10::Half, Half, "float16")
SLIP_TYPE(c10::BFloat16, BFloat16, "bfloat16")
SLIP_TYPE(float, Float, "float32")
SLIP_TYPE(double, Double, "float64")
#undef SLIP_TYPE

struct state {
    handle number;
    facts is;
    explicit state(handle number) : number(number) { done(calls.describe(number, &is)); }
    ~state() { calls.release(number); }
};

}  // namespace slip

namespace at {

using c10::Half;
using c10::BFloat16;
using c10::ScalarType;
using c10::IntArrayRef;
using c10::TensorOptions;
using c10::Device;
using c10::DeviceType;

class Tensor {
    std::shared_ptr<slip::state> held;
    const slip::facts &is() const {
        if (!held) throw c10::Error("an undefined Tensor was used");
        return held->is;
    }
    int64_t dim_of(int64_t d) const {
        int64_t n = is().ndim;
        if (d < -n || d >= n)
            throw c10::Error(slip::joined("Dimension out of range (expected to be in range of [",
                                          -n, ", ", n - 1, "], but got ", d, ")"));
        return d < 0 ? d + n : d;
    }
    Tensor made(const char *name, IntArrayRef numbers = {}) const {
        slip::handle found;
        slip::done(slip::calls.method(name, (is(), held->number), numbers.data(), numbers.size(),
                                      &found));
        return Tensor(found);
    }
  public:
    Tensor() = default;
    explicit Tensor(slip::handle number) : held(std::make_shared<slip::state>(number)) {}
    slip::handle slip_handle() const { return held ? held->number : 0; }
    bool defined() const { return (bool)held; }
    int64_t numel() const { return is().numel; }
    int64_t dim() const { return is().ndim; }
    int64_t ndimension() const { return is().ndim; }
    int64_t size(int64_t d) const { return is().sizes[dim_of(d)]; }
    int64_t stride(int64_t d) const { return is().strides[dim_of(d)]; }
    IntArrayRef sizes() const { return IntArrayRef(is().sizes, is().ndim); }
    IntArrayRef strides() const { return IntArrayRef(is().strides, is().ndim); }
    int64_t element_size() const { return is().itemsize; }
    int64_t itemsize() const { return is().itemsize; }
    int64_t nbytes() const { return is().itemsize * is().numel; }
    bool is_contiguous() const { return is().contiguous != 0; }
    bool is_cuda() const { return is().device >= 0; }
    bool is_cpu() const { return is().device < 0; }
    int64_t get_device() const { return is().device; }
    Device device() const {
        return is_cuda() ? Device(DeviceType::CUDA, is().device) : Device();
    }
    ScalarType scalar_type() const { return (ScalarType)is().dtype; }
    ScalarType dtype() const { return (ScalarType)is().dtype; }
    bool is_floating_point() const {
        return scalar_type() >= ScalarType::Half && scalar_type() <= ScalarType::Double;
    }
    TensorOptions options() const { return TensorOptions(scalar_type()).device(device()); }
    bool sizes_equal(const Tensor &o) const { return sizes() == o.sizes(); }
    Tensor contiguous() const { return is_contiguous() ? *this : made("contiguous"); }
    Tensor clone() const { return made("clone"); }
    Tensor detach() const { return made("detach"); }
    Tensor view(IntArrayRef sizes) const { return made("view", sizes); }
    Tensor reshape(IntArrayRef sizes) const { return made("reshape", sizes); }
    Tensor flatten() const { return made("flatten"); }
    Tensor t() const { return made("t"); }
    Tensor transpose(int64_t a, int64_t b) const { return made("transpose", {a, b}); }
    Tensor to(ScalarType t) const { return made("to_dtype", {(int64_t)t}); }
    Tensor zero_() const { return made("zero_"); }
    Tensor slip_like(const char *how) const { return made(how); }
    template <class T> T *data_ptr() const {
        typedef std::remove_const_t<T> bare;
        static_assert(slip::type_name<bare>::text || std::is_void<bare>::value,
                      "data_ptr<T>() of this type is outside the subset of load_inline");
        if constexpr (!std::is_void<bare>::value) {
            if (scalar_type() != slip::type_name<bare>::scalar)
                throw c10::Error(slip::joined("expected scalar type ",
                    slip::type_name<bare>::scalar, " but found ", scalar_type()));
        }
        return (T *)is().data;
    }
    template <class T> T *data() const { return data_ptr<T>(); }
    template <class T> T *mutable_data_ptr() const { return data_ptr<T>(); }
    template <class T> const T *const_data_ptr() const { return data_ptr<T>(); }
    void *data_ptr() const { return is().data; }
};

namespace slip_make {
inline Tensor make(const char *how, const IntArrayRef &sizes, const TensorOptions &o, double fill) {
    slip::handle found;
    slip::done(slip::calls.make(how, sizes.data(), sizes.size(), o.type, o.place, fill, &found));
    return Tensor(found);
}
}  // namespace slip_make
inline Tensor empty(IntArrayRef s, TensorOptions o = {}) { return slip_make::make("empty", s, o, 0); }
inline Tensor zeros(IntArrayRef s, TensorOptions o = {}) { return slip_make::make("zeros", s, o, 0); }
inline Tensor ones(IntArrayRef s, TensorOptions o = {}) { return slip_make::make("ones", s, o, 1); }
inline Tensor full(IntArrayRef s, double fill, TensorOptions o = {}) {
    return slip_make::make("full", s, o, fill);
}
inline Tensor empty_like(const Tensor &a) { return a.slip_like("empty_like"); }
inline Tensor zeros_like(const Tensor &a) { return a.slip_like("zeros_like"); }
inline Tensor ones_like(const Tensor &a) { return a.slip_like("ones_like"); }

#define SLIP_TYPES(X) \
    X(kBool, Bool) X(kUInt8, Byte) X(kByte, Byte) X(kInt8, Char) X(kChar, Char) X(kInt16, Short) \
    X(kShort, Short) X(kInt32, Int) X(kInt, Int) X(kInt64, Long) X(kLong, Long) X(kHalf, Half) \
    X(kFloat16, Half) X(kBFloat16, BFloat16) X(kFloat32, Float) X(kFloat, Float) \
    X(kFloat64, Double) X(kDouble, Double)
#define SLIP_CONSTANT(name, code) inline constexpr ScalarType name = ScalarType::code;
SLIP_TYPES(SLIP_CONSTANT)
inline constexpr DeviceType kCUDA = DeviceType::CUDA;
inline constexpr DeviceType kCPU = DeviceType::CPU;

}  // namespace at

namespace c10 {
using at::Tensor;
}
namespace torch {
using at::Tensor;
using at::TensorOptions;
using at::IntArrayRef;
using at::Device;
using at::ScalarType;
using at::empty;
using at::zeros;
using at::ones;
using at::full;
using at::empty_like;
using at::zeros_like;
using at::ones_like;
using c10::optional;
using c10::nullopt;
typedef ScalarType Dtype;
#define SLIP_USING(name, code) using at::name;
SLIP_TYPES(SLIP_USING)
using at::kCUDA;
using at::kCPU;
inline TensorOptions dtype(ScalarType t) { return TensorOptions(t); }
inline TensorOptions device(Device d) { return TensorOptions(d); }
}  // namespace torch

/* -- what stands for the CUDA runtime -- */

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
typedef struct CUstream_st *cudaStream_t;
typedef int cudaError_t;
enum { cudaSuccess = 0 };
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
inline const char *cudaGetErrorString(cudaError_t) { return "no error"; }
inline cudaError_t cudaDeviceSynchronize() {
    slip::done(slip::calls.wait());
    return cudaSuccess;
}
namespace c10 { namespace cuda {
struct CUDAStream {
    operator cudaStream_t() const { return nullptr; }
    cudaStream_t stream() const { return nullptr; }
};
inline CUDAStream getCurrentCUDAStream(int = -1) { return {}; }
}}  // namespace c10::cuda
namespace at { namespace cuda {
using c10::cuda::CUDAStream;
using c10::cuda::getCurrentCUDAStream;
}}  // namespace at::cuda

#define TORCH_CHECK(condition, ...) \
    do { \
        if (!(condition)) { \
            std::string slip_text = slip::joined(__VA_ARGS__); \
            throw c10::Error(slip_text.empty() ? "Expected " #condition " to be true, but got false." \
                                               : slip_text); \
        } \
    } while (0)
#define TORCH_INTERNAL_ASSERT TORCH_CHECK
#define AT_ASSERTM TORCH_CHECK
#define AT_ERROR(...) throw c10::Error(slip::joined(__VA_ARGS__))
#define C10_CUDA_CHECK(call) ((void)(call))
#define AT_CUDA_CHECK(call) ((void)(call))
#define C10_CUDA_KERNEL_LAUNCH_CHECK() ((void)0)

namespace slip {

/* -- launches: kernel<<<grid, block, shared, stream>>>(...) -- */

template <class T> value argument(T v) {
    value made;
    if constexpr (std::is_null_pointer<T>::value) {
        made.kind = NONE;
    } else if constexpr (std::is_pointer<T>::value) {
        typedef std::remove_cv_t<std::remove_pointer_t<T>> bare;
        made.kind = v ? POINTER : NONE;
        made.integer = (int64_t)(intptr_t)v;
        if constexpr (!std::is_void<bare>::value) {
            if (type_name<bare>::text) made.text = type_name<bare>::text;
        }
    } else if constexpr (std::is_same<T, bool>::value) {
        made.kind = TRUTH;
        made.integer = v;
    } else if constexpr (std::is_floating_point<T>::value) {
        made.kind = NUMBER;
        made.number = (double)v;
    } else {
        static_assert(std::is_integral<T>::value || std::is_enum<T>::value,
                      "a kernel's argument of this type is outside the subset of load_inline");
        made.kind = std::is_unsigned<T>::value ? UNSIGNED : INTEGER;
        made.integer = (int64_t)v;
    }
    return made;
}

struct launcher {
    const char *name;
    int64_t shape[7];
    launcher(const char *name, dim3 grid, dim3 block, size_t shared = 0, cudaStream_t = nullptr)
        : name(name), shape{grid.x, grid.y, grid.z, block.x, block.y, block.z, (int64_t)shared} {}
    template <class... A> void operator()(A... a) const {
        const value arguments[sizeof...(A) + 1] = {argument<A>(a)..., value()};
        done(calls.launch(name, shape, arguments, sizeof...(A)));
    }
};

/* -- calls from Python -- */

template <class T> struct from;
inline void expect(bool fits, const char *what) {
    if (!fits) throw wrong_type(std::string("has to be ") + what);
}
template <> struct from<at::Tensor> {
    static at::Tensor get(const value &v) {
        expect(v.kind == TENSOR, "a Tensor");
        return at::Tensor(v.integer);
    }
};
template <> struct from<bool> {
    static bool get(const value &v) {
        expect(v.kind == TRUTH, "a bool");
        return v.integer != 0;
    }
};
template <> struct from<std::string> {
    static std::string get(const value &v) {
        expect(v.kind == TEXT, "a str");
        return v.text;
    }
};
template <class T> struct from<std::optional<T>> {
    static std::optional<T> get(const value &v) {
        if (v.kind == NONE) return std::nullopt;
        return from<T>::get(v);
    }
};
template <class T> struct from<std::vector<T>> {
    static std::vector<T> get(const value &v) {
        expect(v.kind == LIST, "a list");
        std::vector<T> made;
        for (int64_t i = 0; i < v.integer; i++) made.push_back(from<T>::get(v.items[i]));
        return made;
    }
};
template <> struct from<c10::IntArrayRef> {
    static c10::IntArrayRef get(const value &v) { return from<std::vector<int64_t>>::get(v); }
};
template <class T> struct from {
    static_assert(std::is_arithmetic<T>::value,
                  "a function's argument of this type is outside the subset of load_inline");
    static T get(const value &v) {
        if constexpr (std::is_floating_point<T>::value) {
            expect(v.kind == NUMBER || v.kind == INTEGER, "a number");
            return v.kind == NUMBER ? (T)v.number : (T)v.integer;
        } else {
            expect(v.kind == INTEGER, "an int");
            expect((int64_t)(T)v.integer == v.integer, "an int that the declared type holds");
            return (T)v.integer;
        }
    }
};

/* Results: `shape` is -1 for one value, else the number of values of a sequence. */
struct results {
    int64_t shape = 0;
    std::vector<value> items;
    std::vector<at::Tensor> tensors;
    std::vector<std::string> texts;
    void add(const at::Tensor &t) {
        value v;
        v.kind = t.defined() ? TENSOR : NONE;
        v.integer = t.slip_handle();
        tensors.push_back(t);
        items.push_back(v);
    }
    void add(bool b) { push(TRUTH, b, 0); }
    void add(double x) { push(NUMBER, 0, x); }
    void add(float x) { push(NUMBER, 0, x); }
    template <class I, class = std::enable_if_t<std::is_integral<I>::value>> void add(I i) {
        push(INTEGER, (int64_t)i, 0);
    }
    void push(int64_t kind, int64_t integer, double number) {
        value v;
        v.kind = kind;
        v.integer = integer;
        v.number = number;
        items.push_back(v);
    }
    template <class T> void put(const T &one) {
        shape = -1;
        add(one);
    }
    template <class T> void put(const std::vector<T> &many) {
        shape = (int64_t)many.size();
        for (const auto &each : many) add(each);
    }
    template <class... T> void put(const std::tuple<T...> &many) {
        shape = sizeof...(T);
        std::apply([&](const auto &...each) { (add(each), ...); }, many);
    }
    template <class A, class B> void put(const std::pair<A, B> &two) {
        shape = 2;
        add(two.first);
        add(two.second);
    }
};

inline thread_local std::string complaint;
inline thread_local results last;

template <class T, size_t N> std::decay_t<T> take(const value *arguments) {
    try {
        return from<std::decay_t<T>>::get(arguments[N]);
    } catch (const wrong_type &error) {
        throw wrong_type(joined("argument ", N + 1, " ", error.what()));
    }
}
template <class R, class... A, size_t... N>
void call(R (*function)(A...), const value *arguments, std::index_sequence<N...>) {
    std::tuple<std::decay_t<A>...> held{take<A, N>(arguments)...};
    if constexpr (std::is_void<R>::value) function(std::get<N>(held)...);
    else last.put(function(std::get<N>(held)...));
}
template <class R, class... A>
int guarded(R (*function)(A...), const value *arguments, int64_t count) {
    last = results();
    try {
        if (count != (int64_t)sizeof...(A))
            throw wrong_type(joined("takes ", sizeof...(A), " arguments, ", count, " were given"));
        call(function, arguments, std::index_sequence_for<A...>());
        return 0;
    } catch (const pending &) {
        return 1;
    } catch (const wrong_type &error) {
        complaint = error.what();
        return 2;
    } catch (const std::exception &error) {
        complaint = error.what();
        return 3;
    }
}

}  // namespace slip

#define SLIP_EXPORT extern "C" __attribute__((visibility("default")))
SLIP_EXPORT void slip_attach(const slip::table *table) { slip::calls = *table; }
SLIP_EXPORT const char *slip_complaint() { return slip::complaint.c_str(); }
SLIP_EXPORT int64_t slip_result_shape() { return slip::last.shape; }
SLIP_EXPORT const slip::value *slip_results() { return slip::last.items.data(); }
SLIP_EXPORT int64_t slip_result_count() { return (int64_t)slip::last.items.size(); }
SLIP_EXPORT void slip_forget() { slip::last = slip::results(); }
