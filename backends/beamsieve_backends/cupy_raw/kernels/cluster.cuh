// Clusters: the blocks of one request, side by side on neighbouring multiprocessors (sm_90 and later).
//
// They read and write each other's shared memory and meet in hardware, so that a step needs no second
// launch. The cluster is the grid's whole first dimension, a power of two. Every block carves its shared memory alike.

// The cluster's barrier in two halves: what a thread wrote before it arrives, to whichever block's shared
// memory, can be seen by every thread that has waited. All threads of all blocks do both.
__device__ __forceinline__ void cluster_arrive() {
#ifndef __CUDA_ARCH__
    cluster_arrive_on_host();
#elif __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#else
    __trap();  // never launched there: the backend asks the device first
#endif
}
// The first meeting, which says no more than that the other blocks are there: it orders no memory.
__device__ __forceinline__ void cluster_begin() {
#ifndef __CUDA_ARCH__
    cluster_arrive_on_host();
#elif __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#else
    __trap();
#endif
}
__device__ __forceinline__ void cluster_wait() {
#ifndef __CUDA_ARCH__
    cluster_wait_on_host();
#elif __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
    __trap();
#endif
}

// The same place in the shared memory of block `rank` of the cluster.
template <class T> __device__ __forceinline__ T* peer(T* mine, u32 rank) {
#ifndef __CUDA_ARCH__
    return static_cast<T*>(peer_on_host(mine, rank));
#elif __CUDA_ARCH__ >= 900
    u64 theirs;
    asm("mapa.u64 %0, %1, %2;" : "=l"(theirs) : "l"(reinterpret_cast<u64>(mine)), "r"(rank));
    return reinterpret_cast<T*>(theirs);
#else
    __trap();
    return mine;
#endif
}

// A mailbox: what all blocks send to one. Each announces once how many bytes it sends; they are there when all
// have announced, and all that they announced has come. No fence is waited for, as a barrier of the cluster
// waits for one of the whole device. A mailbox serves once, and blocks may send when the cluster has begun.
__device__ __forceinline__ void open_mailbox(u64* box, u32 blocks) {
#ifndef __CUDA_ARCH__
    *box = 0;
#elif __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(static_cast<u32>(__cvta_generic_to_shared(box))), "r"(blocks) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
    __trap();
#endif
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
// As the cluster names the place in the shared memory of block `rank`.
__device__ __forceinline__ u32 place_in_cluster(const void* mine, u32 rank) {
    u32 theirs;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(theirs) : "r"(static_cast<u32>(__cvta_generic_to_shared(mine))), "r"(rank));
    return theirs;
}
#endif
// Sends a number to the same place of block `rank`.
__device__ __forceinline__ void send(u64* to, u64 number, u64* box, u32 rank) {
#ifndef __CUDA_ARCH__
    send_on_host(to, number, box, rank);
#elif __CUDA_ARCH__ >= 900
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(place_in_cluster(to, rank)), "l"(number),
        "r"(place_in_cluster(box, rank)) : "memory"
    );
#else
    __trap();
#endif
}
__device__ __forceinline__ void announce(u64* box, u32 rank, u32 bytes) {
#ifndef __CUDA_ARCH__
    announce_on_host(box, rank, bytes);
#elif __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cluster.b64 _, [%0], %1;" ::"r"(place_in_cluster(box, rank)), "r"(bytes) : "memory");
#else
    __trap();
#endif
}
__device__ __forceinline__ void await_mail(u64* box) {
#ifndef __CUDA_ARCH__
    await_mail_on_host(box);
#elif __CUDA_ARCH__ >= 900
    asm volatile(
        "{.reg .pred p; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0; @p bra DONE; bra AGAIN; DONE: }" ::"r"(
            static_cast<u32>(__cvta_generic_to_shared(box))) : "memory"
    );
#else
    __trap();
#endif
}

// The binary logarithm of a power of two: divisions by blocks become shifts.
__device__ __forceinline__ int bit_of(u32 x) { return 31 - __clz(static_cast<int>(x)); }

// A warp writes place `place` of request b: the beam that parent `m` becomes by `token`, -1 for a finished one.
// `before` holds the parent's tokens.
__device__ __forceinline__ void write_beam_by_warp(const Step& step, int b, u32 place, int m, const int* before, int token, float key, i64 entry) {
    const i64 out = static_cast<i64>(b) * step.width + place;
    for (int i = lane_id(); i <= step.decoded; i += 32) step.out_tokens[out * (step.decoded + 1) + i] = i < step.decoded ? before[i] : token;
    if (lane_id() != 0) return;
    u8 finished = 1;
    i64 row = entry;
    if (token >= 0) row = settle(step, entry, finished);
    step.out_scores[out] = key;
    step.out_keys[out] = key;
    step.out_rows[out] = row;
    step.out_parents[out] = m;
    step.out_finished[out] = finished;
}
