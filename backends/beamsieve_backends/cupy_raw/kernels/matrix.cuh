// The matrix units, one instruction a function: 16-bit numbers in, float32 sums out.
//
// The shapes are those of mma.m16n8k16: lane l of a warp holds, of a 16 x 16 left part, rows l / 4 and
// l / 4 + 8 at columns 2 (l % 4) + {0, 1, 8, 9}; of a right part of 8 columns, column l / 4 at the same
// depths; of the 16 x 8 sums, rows l / 4 and l / 4 + 8 at columns 2 (l % 4) + {0, 1}.

#ifdef __CUDA_ARCH__

// Four 8 x 8 parts out of shared memory; lane l says where row l % 8 of part l / 8 begins.
__device__ __forceinline__ void load_parts(u32 (&to)[4], const u8* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(static_cast<u32>(__cvta_generic_to_shared(row))));
}

// sums += left . right
__device__ __forceinline__ void multiply_add(float (&sums)[4], const u32 (&left)[4], u32 right0, u32 right1, float16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}
__device__ __forceinline__ void multiply_add(float (&sums)[4], const u32 (&left)[4], u32 right0, u32 right1, bfloat16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right0), "r"(right1));
}

// 16 bytes from global to shared memory, on their way while the thread goes on; zeros unless `there`.
__device__ __forceinline__ void copy16(u8* to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(static_cast<u32>(__cvta_generic_to_shared(to))), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}
// Closes a group of copies, and waits until all but the last `Open` groups have come.
__device__ __forceinline__ void close_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int Open> __device__ __forceinline__ void await_copies() { asm volatile("cp.async.wait_group %0;" :: "n"(Open) : "memory"); }

#endif
