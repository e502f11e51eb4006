// Eight numbers of a row, as they are loaded.
template <class T>
struct Eight {
    uint4 words[sizeof(T) / 2];

    __device__ __forceinline__ void load(const T* from) {
#pragma unroll
        for (int i = 0; i < static_cast<int>(sizeof(T) / 2); ++i) words[i] = reinterpret_cast<const uint4*>(from)[i];
    }
    __device__ __forceinline__ void settle() {
#pragma unroll
        for (int i = 0; i < static_cast<int>(sizeof(T) / 2); ++i) words[i] = settled(words[i]);
    }
    __device__ __forceinline__ void numbers(float (&to)[8]) const { load8(reinterpret_cast<const T*>(words), to); }
};
