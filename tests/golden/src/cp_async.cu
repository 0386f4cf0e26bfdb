// A three-stage cp.async pipeline (LDGSTS, LDGDEPBAR, DEPBAR): sum of tiles. Launch with 256 threads.
__device__ __forceinline__ void copy16(void* shared, const void* global) {
    unsigned s = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(s), "l"(global) : "memory");
}

extern "C" __global__ void __launch_bounds__(256) cp_async(float4* out, const float4* in, int tiles) {
    __shared__ float4 stage[3][256];
    int t = threadIdx.x;
    const float4* mine = in + (size_t)blockIdx.x * tiles * 256 + t;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int s = 0; s < 2; ++s) {
        if (s < tiles) copy16(&stage[s][t], mine + s * 256);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    for (int k = 0; k < tiles; ++k) {
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        if (k + 2 < tiles) copy16(&stage[(k + 2) % 3][t], mine + (k + 2) * 256);
        asm volatile("cp.async.commit_group;" ::: "memory");
        float4 v = stage[k % 3][t ^ 1];
        sum.x += v.x; sum.y += v.y; sum.z += v.z; sum.w += v.w;
    }
    out[blockIdx.x * 256 + t] = sum;
}
