// Enough of CUDA C++ to run one block's threads after another on a CPU, or one cluster's, for tests of kernel logic.
//
// Every thread is a fiber with a stack of its own; a barrier or a warp operation switches to the
// next fiber until all have come. Fibers and blocks run in a random order, and shared memory starts
// as garbage, so a missing barrier or an unset word shows. What it cannot show: data races that
// need true concurrency, and what ptxas makes of the code.
//
// It is compiled anew with every kernel, so it does without the parts of the library that take long to read.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __shared__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct Dim3 { unsigned x, y, z; };
struct uint2 { unsigned x, y; };
struct uint4 { unsigned x, y, z, w; };
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
template <class T> static inline T max(T a, T b) { return a < b ? b : a; }
template <class T> static inline T min(T a, T b) { return b < a ? b : a; }
static Dim3 threadIdx, blockIdx, gridDim, blockDim;

// --- fibers

extern "C" void switch_stack(void** save, void* load);
asm(R"(
.text
.globl switch_stack
switch_stack:
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    ret
)");

struct Fiber {
    void* stack_pointer = nullptr;
    char* stack = nullptr;
    unsigned id = 0;
    bool done = false;
    unsigned block = 0;          // which of the cluster's
    unsigned cluster_round = 0;  // the cluster's barrier that it arrived at
};

static constexpr size_t STACK = 256 << 10;
static constexpr unsigned MOST_FIBERS = 16 << 10;
static Fiber fibers[MOST_FIBERS];
static void* scheduler_stack;
static Fiber* current;
static void (*body)(const void*);
static const void* given;

// What the threads of one block share; the blocks of a cluster run side by side.
struct Block {
    unsigned block_arrived = 0, warp_arrived[64] = {}, block_round = 0, warp_round[64] = {};
    uint64_t exchange[64][32] = {};
    unsigned vote = 0;
    Dim3 index = {};
    unsigned char* shared = nullptr;
};
static constexpr unsigned SHARED_BYTES = 232448, MOST_CLUSTER = 16;
static Block cluster_blocks[MOST_CLUSTER];
static Block* block;
static unsigned cluster_size, cluster_arrived, cluster_round;
static unsigned char* shared_bytes;  // of the current block

static void yield_fiber() {
    switch_stack(&current->stack_pointer, scheduler_stack);
}
static void fiber_main() {
    body(given);
    current->done = true;
    yield_fiber();
    abort();
}
static void block_barrier() {
    Block& mine = *block;
    const unsigned round = mine.block_round;
    if (++mine.block_arrived == blockDim.x) {
        mine.block_arrived = 0;
        ++mine.block_round;
        return;
    }
    while (mine.block_round == round) yield_fiber();
}
static void warp_barrier() {
    Block& mine = *block;
    const unsigned warp = threadIdx.x / 32, round = mine.warp_round[warp];
    if (++mine.warp_arrived[warp] == 32) {
        mine.warp_arrived[warp] = 0;
        ++mine.warp_round[warp];
        return;
    }
    while (mine.warp_round[warp] == round) yield_fiber();
}
static void cluster_arrive_on_host() {
    current->cluster_round = cluster_round;
    if (++cluster_arrived == blockDim.x * cluster_size) {
        cluster_arrived = 0;
        ++cluster_round;
    }
}
static void cluster_wait_on_host() {
    while (cluster_round == current->cluster_round) yield_fiber();
}
static void* peer_on_host(void* mine, unsigned rank) {
    if (rank >= cluster_size) { fprintf(stderr, "no block %u in the cluster\n", rank); abort(); }
    return cluster_blocks[rank].shared + (static_cast<unsigned char*>(mine) - block->shared);
}

// A mailbox: announcements below, bytes that were announced and have not come above.
static void send_on_host(unsigned long long* to, unsigned long long number, unsigned long long* box, unsigned rank) {
    *static_cast<unsigned long long*>(peer_on_host(to, rank)) = number;
    *static_cast<unsigned long long*>(peer_on_host(box, rank)) -= 8ull << 32;
}
static void announce_on_host(unsigned long long* box, unsigned rank, unsigned bytes) {
    *static_cast<unsigned long long*>(peer_on_host(box, rank)) += 1 + (static_cast<unsigned long long>(bytes) << 32);
}
static void await_mail_on_host(unsigned long long* box) {
    while (*box != cluster_size) yield_fiber();
}

// 0 to count - 1 in a random order (xorshift).
static unsigned* shuffled(unsigned count, uint64_t& random) {
    auto* order = static_cast<unsigned*>(malloc(count * sizeof(unsigned)));
    for (unsigned i = 0; i < count; ++i) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        const unsigned from = static_cast<unsigned>((random >> 32) * (i + 1) >> 32);
        order[i] = order[from];
        order[from] = i;
    }
    return order;
}

static void run_grid(unsigned x, unsigned y, unsigned z, unsigned threads, unsigned shared, unsigned cluster, unsigned seed, void (*kernel)(const void*), const void* values) {
    if (shared > SHARED_BYTES) { fprintf(stderr, "too much shared memory: %u\n", shared); abort(); }
    cluster = max(1u, cluster);
    if (cluster > MOST_CLUSTER || x % cluster) { fprintf(stderr, "no clusters of %u in %u blocks\n", cluster, x); abort(); }
    uint64_t random = seed * 0x9e3779b97f4a7c15ull + 1;
    body = kernel;
    given = values;
    blockDim = {threads, 1, 1};
    gridDim = {x, y, z};
    cluster_size = cluster;
    cluster_arrived = 0;
    const unsigned all = threads * cluster;
    if (all > MOST_FIBERS) { fprintf(stderr, "too many threads: %u\n", all); abort(); }
    for (unsigned i = 0; i < all; ++i)
        if (!fibers[i].stack) fibers[i].stack = static_cast<char*>(malloc(STACK));
    for (unsigned k = 0; k < cluster; ++k)
        if (!cluster_blocks[k].shared) cluster_blocks[k].shared = static_cast<unsigned char*>(aligned_alloc(16, SHARED_BYTES));
    const unsigned count = x / cluster * y * z;
    unsigned* groups = shuffled(count, random);
    for (unsigned place = 0; place < count; ++place) {
        const unsigned group = groups[place];
        unsigned* order = shuffled(all, random);
        for (unsigned k = 0; k < cluster; ++k) {
            Block& one = cluster_blocks[k];
            const unsigned number = group * cluster + k;
            one.index = {number % x, number / x % y, number / x / y};
            memset(one.shared, 0xa5, SHARED_BYTES);
            one.block_arrived = 0;
            memset(one.warp_arrived, 0, sizeof one.warp_arrived);
        }
        for (unsigned i = 0; i < all; ++i) {
            Fiber& fiber = fibers[i];
            fiber.id = i % threads;
            fiber.block = i / threads;
            fiber.done = false;
            void** top = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(fiber.stack + STACK) & ~uintptr_t{15});
            *--top = nullptr;  // keeps the stack aligned as after a call
            *--top = reinterpret_cast<void*>(&fiber_main);
            for (int k = 0; k < 6; ++k) *--top = nullptr;
            fiber.stack_pointer = top;
        }
        unsigned left = all;
        unsigned long idle = 0;
        while (left > 0) {
            for (unsigned turn = 0; turn < all; ++turn) {
                Fiber& fiber = fibers[order[turn]];
                if (fiber.done) continue;
                current = &fiber;
                block = &cluster_blocks[fiber.block];
                blockIdx = block->index;
                shared_bytes = block->shared;
                threadIdx = {fiber.id, 0, 0};
                switch_stack(&scheduler_stack, fiber.stack_pointer);
                if (fiber.done) { --left; idle = 0; }
            }
            if (++idle > 2000000) { fprintf(stderr, "deadlock: threads wait at different barriers\n"); abort(); }
        }
        for (unsigned k = 0; k < cluster; ++k)
            if (cluster_blocks[k].block_arrived) { fprintf(stderr, "some threads left before a barrier\n"); abort(); }
        if (cluster_arrived) { fprintf(stderr, "some blocks left before a barrier\n"); abort(); }
        free(order);
    }
    free(groups);
}

// --- the device's functions

static inline void __syncthreads() { block_barrier(); }
static inline int __syncthreads_or(int x) {
    block_barrier();
    if (threadIdx.x == 0) block->vote = 0;
    block_barrier();
    if (x) block->vote = 1;
    block_barrier();
    return static_cast<int>(block->vote);
}
static inline int __syncthreads_count(int x) {
    block_barrier();
    if (threadIdx.x == 0) block->vote = 0;
    block_barrier();
    if (x) ++block->vote;
    block_barrier();
    return static_cast<int>(block->vote);
}
static inline void __syncwarp() { warp_barrier(); }
static inline void __threadfence() {}
template <class T> static inline T __ldcg(const T* from) { return *from; }
template <class T> static inline T __ldg(const T* from) { return *from; }
static inline int __float_as_int(float x) { int bits; memcpy(&bits, &x, 4); return bits; }
static inline float __int_as_float(int bits) { float x; memcpy(&x, &bits, 4); return x; }
static inline float host_expf(float x) { return expf(x); }
#define __expf host_expf
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned atomicAdd(unsigned* to, unsigned x) { const unsigned old = *to; *to += x; return old; }
static inline unsigned atomicMax(unsigned* to, unsigned x) { const unsigned old = *to; *to = max(old, x); return old; }
static inline unsigned atomicInc(unsigned* to, unsigned limit) { const unsigned old = *to; *to = old >= limit ? 0 : old + 1; return old; }

template <class T> static inline T exchange_lane(T mine, int from) {
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint64_t bits = 0;
    memcpy(&bits, &mine, sizeof(T));
    block->exchange[warp][lane] = bits;
    warp_barrier();
    T theirs;
    memcpy(&theirs, &block->exchange[warp][from & 31], sizeof(T));
    warp_barrier();
    return theirs;
}
template <class T> static inline T __shfl_sync(unsigned, T x, int lane) { return exchange_lane(x, lane); }
template <class T> static inline T __shfl_xor_sync(unsigned, T x, int mask) { return exchange_lane(x, (threadIdx.x % 32) ^ mask); }
template <class T> static inline T __shfl_up_sync(unsigned, T x, int by) {
    const int lane = threadIdx.x % 32;
    return exchange_lane(x, lane >= by ? lane - by : lane);
}
template <class Is> static inline unsigned gather(uint64_t mine, Is is) {
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    block->exchange[warp][lane] = mine;
    warp_barrier();
    unsigned mask = 0;
    for (int i = 0; i < 32; ++i) mask |= static_cast<unsigned>(is(block->exchange[warp][i])) << i;
    warp_barrier();
    return mask;
}
static inline unsigned __ballot_sync(unsigned, bool x) { return gather(x, [](uint64_t v) { return v != 0; }); }
static inline bool __any_sync(unsigned mask, bool x) { return __ballot_sync(mask, x) != 0; }
static inline unsigned __match_any_sync(unsigned, unsigned x) { return gather(x, [x](uint64_t v) { return v == x; }); }
static inline unsigned __reduce_add_sync(unsigned, unsigned x) {
    unsigned sum = 0;
    gather(x, [&](uint64_t v) { sum += static_cast<unsigned>(v); return false; });
    return sum;
}
static inline unsigned __reduce_max_sync(unsigned, unsigned x) {
    unsigned largest = 0;
    gather(x, [&](uint64_t v) { largest = max(largest, static_cast<unsigned>(v)); return false; });
    return largest;
}
