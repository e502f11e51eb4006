// Number types, warp and block helpers that every kernel uses. All kernels run THREADS threads.

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

constexpr int THREADS = 512;
constexpr int WARPS = THREADS / 32;
constexpr u32 EVERY_LANE = 0xffffffffu;

// Kernels are started before those ahead of them on the stream have ended (programmatic dependent launch, sm_90
// and later).
//
// From here on the next one may be: when every block has said so, or has ended. It takes room on multiprocessors
// and waits there, so that its blocks lie badly where many of this kernel's have not ended yet.
__device__ __forceinline__ void kernel_behind_may_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Every thread of every kernel calls this once, and touches no device memory before: then all that came ahead
// has ended and can be seen. `Alone`: the kernel behind, which may have many blocks, waits for the end of this one.
constexpr u32 FEW_BLOCKS = 32;
template <bool Alone = false> __device__ __forceinline__ void after_kernels_ahead() {
    if (!Alone && gridDim.x * gridDim.y * gridDim.z <= FEW_BLOCKS) kernel_behind_may_start();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// All shared memory is dynamic; each kernel carves what it needs out of it (see Carver).
extern __shared__ __align__(16) u8 shared_bytes[];

struct Carver {
    u32 used = 0;
    template <class T> __device__ T* take(u32 count) {
        T* place = reinterpret_cast<T*>(shared_bytes + used);
        used += (count * static_cast<u32>(sizeof(T)) + 15u) & ~15u;
        return place;
    }
};

// The same value, in a register from here on: the compiler would rather compute some again at every use,
// or keep what it was made of. Addresses in device or in shared memory, and numbers.
template <class P> __device__ __forceinline__ P* settled(P* x) {
#ifdef __CUDA_ARCH__
    u64 place = __cvta_generic_to_global(x);
    asm volatile("" : "+l"(place));
    x = static_cast<P*>(__cvta_global_to_generic(place));
#endif
    return x;
}
template <class P> __device__ __forceinline__ P* settled_in_block(P* x) {
#ifdef __CUDA_ARCH__
    u32 place = static_cast<u32>(__cvta_generic_to_shared(x));
    asm volatile("" : "+r"(place));
    x = static_cast<P*>(__cvta_shared_to_generic(place));
#endif
    return x;
}
template <class P> __device__ __forceinline__ P* settled_anywhere(P* x) {  // device or shared memory
#ifdef __CUDA_ARCH__
    asm volatile("" : "+l"(x));
#endif
    return x;
}
__device__ __forceinline__ u32 settled(u32 x) {
#ifdef __CUDA_ARCH__
    asm volatile("" : "+r"(x));
#endif
    return x;
}
__device__ __forceinline__ uint4 settled(uint4 x) {
#ifdef __CUDA_ARCH__
    asm volatile("" : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w));
#endif
    return x;
}
__device__ __forceinline__ float settled(float x) {
#ifdef __CUDA_ARCH__
    asm volatile("" : "+f"(x));
#endif
    return x;
}

__device__ __forceinline__ float never() { return __int_as_float(static_cast<int>(0xff800000u)); }

__device__ __forceinline__ bool is_finite(float x) {
    return (static_cast<u32>(__float_as_int(x)) & 0x7f800000u) != 0x7f800000u;
}

// A logit, score or key that is NaN or infinite means "dead": -inf.
__device__ __forceinline__ float or_dead(float x) { return is_finite(x) ? x : never(); }

// --- float32, bfloat16 and float16 in memory, float32 in registers

struct bfloat16 { u16 bits; };
struct float16 { u16 bits; };

__device__ __forceinline__ float number(float x) { return x; }
__device__ __forceinline__ float number(bfloat16 x) {
    return __int_as_float(static_cast<int>(static_cast<u32>(x.bits) << 16));
}
// Without the device's instruction, exponent and fraction move to their float32 places; a product with
// 2^112 corrects the bias, and makes subnormals right too. Only infinity and NaN need their exponent set.
__device__ __forceinline__ float number(float16 x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
#else
    const u32 sign = static_cast<u32>(x.bits & 0x8000u) << 16;
    const u32 rest = static_cast<u32>(x.bits & 0x7fffu) << 13;
    const float scaled = __int_as_float(static_cast<int>(rest)) * __int_as_float(0x77800000);
    const u32 size = static_cast<u32>(__float_as_int(scaled)) | ((x.bits & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u);
    return __int_as_float(static_cast<int>(sign | size));
#endif
}

// Type codes of arrays whose type is not a template parameter.
constexpr int FLOAT32 = 0, BFLOAT16 = 1, FLOAT16 = 2;

__device__ __noinline__ float number_at(const void* array, int type, i64 i) {
    if (type == FLOAT32) return static_cast<const float*>(array)[i];
    if (type == BFLOAT16) return number(static_cast<const bfloat16*>(array)[i]);
    return number(static_cast<const float16*>(array)[i]);
}

// An unsigned integer of 1, 2, 4 or 8 bytes; signed ones are never negative here. The short ones are
// cut out of the 32-bit word that holds them: arrays begin at whole words.
__device__ __forceinline__ i64 integer_at(const void* array, int bytes, i64 i) {
    if (bytes == 8) return static_cast<const i64*>(array)[i];
    const i64 at = i * bytes;
    const u32 word = *reinterpret_cast<const u32*>(static_cast<const u8*>(array) + (at & ~3ll));
    return word >> (8 * static_cast<u32>(at & 3)) & (0xffffffffu >> (32 - 8 * bytes));
}

// A signed one of 4 or 8 bytes.
__device__ __forceinline__ i64 signed_at(const void* array, int bytes, i64 i) {
    return bytes == 8 ? static_cast<const i64*>(array)[i] : static_cast<const int*>(array)[i];
}

// Eight consecutive numbers; the address is aligned to 16 bytes.
__device__ __forceinline__ void load8(const float* from, float (&to)[8]) {
    const float4 low = reinterpret_cast<const float4*>(from)[0];
    const float4 high = reinterpret_cast<const float4*>(from)[1];
    to[0] = low.x; to[1] = low.y; to[2] = low.z; to[3] = low.w;
    to[4] = high.x; to[5] = high.y; to[6] = high.z; to[7] = high.w;
}
template <class T> __device__ __forceinline__ void load8(const T* from, float (&to)[8]) {
    const uint4 words = *reinterpret_cast<const uint4*>(from);
    const u32 word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        to[2 * i] = number(T{static_cast<u16>(word[i] & 0xffffu)});
        to[2 * i + 1] = number(T{static_cast<u16>(word[i] >> 16)});
    }
}

// Four consecutive numbers; the address is aligned to four of them.
__device__ __forceinline__ void load4(const float* from, float (&to)[4]) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    to[0] = four.x; to[1] = four.y; to[2] = four.z; to[3] = four.w;
}
template <class T> __device__ __forceinline__ void load4(const T* from, float (&to)[4]) {
    const uint2 words = *reinterpret_cast<const uint2*>(from);
    to[0] = number(T{static_cast<u16>(words.x & 0xffffu)});
    to[1] = number(T{static_cast<u16>(words.x >> 16)});
    to[2] = number(T{static_cast<u16>(words.y & 0xffffu)});
    to[3] = number(T{static_cast<u16>(words.y >> 16)});
}

// Copies that run on their own: `Bytes` (8 or 16) from device to shared memory, or zeros where there is
// nothing. The thread that asked for them waits until at most `Left` of the groups that it closed are open.
template <int Bytes> __device__ __forceinline__ void copy_ahead(void* to, const void* from, bool there) {
#ifdef __CUDA_ARCH__
    const u32 place = static_cast<u32>(__cvta_generic_to_shared(to)), size = there ? Bytes : 0;
    if (Bytes == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(size) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(place), "l"(from), "r"(size) : "memory");
#else
    for (int i = 0; i < Bytes; ++i) static_cast<u8*>(to)[i] = there ? static_cast<const u8*>(from)[i] : 0;
#endif
}
__device__ __forceinline__ void close_copies() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int Left> __device__ __forceinline__ void await_copies() {
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
#endif
}

// 2 to the x, to a few units in the last place; 0 for what would be subnormal.
__device__ __forceinline__ float quick_exp2(float x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return exp2f(x);
#endif
}
__device__ __forceinline__ float quick_exp(float x) { return quick_exp2(x * 1.4426950408889634f); }

// --- order

// A float as an integer of the same order (NaN aside), and back. -0 is +0, which a sum with +0 makes it.
__device__ __forceinline__ u32 ordered(float x) {
    const u32 bits = static_cast<u32>(__float_as_int(x + 0.0f));
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float unordered(u32 place) {
    return __int_as_float(static_cast<int>(place & 0x80000000u ? place & 0x7fffffffu : ~place));
}

// --- warps and blocks

__device__ __forceinline__ int lane_id() { return threadIdx.x & 31; }
__device__ __forceinline__ int warp_id() { return threadIdx.x >> 5; }

__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int step = 16; step > 0; step >>= 1) x += __shfl_xor_sync(EVERY_LANE, x, step);
    return x;
}
// The sums of x[0] to x[3] over the warp: that of x[k] in the lanes from 8 k on. Lanes trade what others
// add, so that each of the last steps is one for all four.
__device__ __forceinline__ float four_sums(const float (&x)[4]) {
    const bool upper = (threadIdx.x & 16) != 0, odd = (threadIdx.x & 8) != 0;
    float even = upper ? x[2] : x[0], next = upper ? x[3] : x[1];
    even += __shfl_xor_sync(EVERY_LANE, upper ? x[0] : x[2], 16);
    next += __shfl_xor_sync(EVERY_LANE, upper ? x[1] : x[3], 16);
    float sum = (odd ? next : even) + __shfl_xor_sync(EVERY_LANE, odd ? even : next, 8);
#pragma unroll
    for (int by = 4; by > 0; by >>= 1) sum += __shfl_xor_sync(EVERY_LANE, sum, by);
    return sum;
}
__device__ __forceinline__ float warp_max(float x) {
    return unordered(__reduce_max_sync(EVERY_LANE, ordered(x)));
}
__device__ __forceinline__ u32 warp_scan(u32 x) {  // inclusive
#pragma unroll
    for (int step = 1; step < 32; step <<= 1) {
        const u32 before = __shfl_up_sync(EVERY_LANE, x, step);
        if (lane_id() >= step) x += before;
    }
    return x;
}

// Most code of a small step runs once, and waits for its own instructions more than for anything else.
// So what is used in several places is called rather than repeated, and loops stay rolled up where a
// thread takes few turns. What is called takes numbers and addresses and returns numbers: a structure
// or a number that is handed over by reference lies in local memory from then on, and every access
// to it waits for that memory.

struct Scan {
    u32 before;  // the sum of the threads before
    u32 total;   // of all
};

// Sums over the block. `words` holds WARPS words.
__device__ __noinline__ Scan block_scan(u32 x, u32* words) {
    const u32 inclusive = warp_scan(x);
    if (lane_id() == 31) words[warp_id()] = inclusive;
    __syncthreads();
    const u32 upto = warp_scan(lane_id() < WARPS ? words[lane_id()] : 0);  // by every warp: no more waiting
    const u32 total = __shfl_sync(EVERY_LANE, upto, 31);
    const u32 before = __shfl_sync(EVERY_LANE, upto, warp_id() == 0 ? 31 : warp_id() - 1);
    __syncthreads();
    return {(warp_id() == 0 ? 0 : before) + inclusive - x, total};
}

// Adds one to a counter that returns to zero after `last`, and returns what it was. What the block wrote
// before its last barrier can be seen by whoever arrives later, and what earlier ones wrote by this thread.
__device__ __forceinline__ u32 arrive(u32* counter, u32 last) {
#ifdef __CUDA_ARCH__
    u32 before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(last) : "memory");
    return before;
#else
    return atomicInc(counter, last);
#endif
}

// True in every thread of the block that arrives last of `blocks`; that block sees all that the
// others wrote. The counter is zero before and after. `words` holds one word.
__device__ __forceinline__ bool arrived_last(u32* counter, u32 blocks, u32* words) {
    __syncthreads();
    if (blocks == 1) return true;
    if (threadIdx.x == 0) words[0] = arrive(counter, blocks - 1) == blocks - 1;
    __syncthreads();
    const bool last = words[0] != 0;
    __syncthreads();
    return last;
}

// --- log-sum-exp in one pass: the largest value seen and the sum of exp(x - largest)

struct Mass {
    float largest = never();
    float sum = 0.0f;

    __device__ __forceinline__ void add(float x) {
        if (x > largest) {
            sum = sum * quick_exp(largest - x) + 1.0f;  // exp(-inf) = 0 at the first one
            largest = x;
        } else if (x > never()) {
            sum += quick_exp(x - largest);
        }
    }
    __device__ __forceinline__ void add(const Mass& other) {
        const float top = fmaxf(largest, other.largest);
        if (top == never()) return;
        sum = sum * quick_exp(largest - top) + other.sum * quick_exp(other.largest - top);
        largest = top;
    }
    __device__ __forceinline__ Mass across_warp() const {
        Mass all;
        all.largest = warp_max(largest);
        if (all.largest != never()) all.sum = warp_sum(sum * quick_exp(largest - all.largest));
        return all;
    }
    // The log of the mass, in two parts: x is the largest value, y the log of the rest. Subtracted
    // one after the other, they keep the differences between logits of any size. Without any mass
    // the candidates are all -inf, and stay so.
    __device__ __forceinline__ float2 log() const {
        return largest == never() ? make_float2(0.0f, 0.0f) : make_float2(largest, logf(sum));
    }
};

// The thread's part of the mass of x[0], x[each], …, up to `count` of them: the largest first, so that
// no term waits for the one before.
__device__ __noinline__ Mass mass_of(const float* x, u32 first, u32 count, u32 each) {
    Mass mass;
#pragma unroll 1
    for (u32 j = first; j < count; j += each) mass.largest = fmaxf(mass.largest, x[j]);
    if (mass.largest == never()) return mass;
#pragma unroll 1
    for (u32 j = first; j < count; j += each) mass.sum += quick_exp(x[j] - mass.largest);
    return mass;
}

// The sum of all warps' masses; each warp brings its own. `places` holds 2 * WARPS numbers.
__device__ __forceinline__ Mass across_block(Mass of_warp, float* places) {
    if (lane_id() == 0) {
        places[warp_id()] = of_warp.largest;
        places[WARPS + warp_id()] = of_warp.sum;
    }
    __syncthreads();
    Mass all;
    if (lane_id() < WARPS) {
        all.largest = places[lane_id()];
        all.sum = places[WARPS + lane_id()];
    }
    all = all.across_warp();
    __syncthreads();
    return all;
}

__device__ __forceinline__ float log_probability(float logit, float2 mass) { return (logit - mass.x) - mass.y; }
