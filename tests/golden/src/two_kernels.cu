// Two kernels and a device function that both call, in one image.
__device__ __noinline__ int mix(int x, int rounds) {
    for (int i = 0; i < rounds; ++i) x = (x ^ (x << 13)) * 0x5bd1e995 + (x >> 17);
    return x;
}

extern "C" __global__ void first_of_two(int* out, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = mix(out[i] + i, rounds);
}

extern "C" __global__ void second_of_two(int* out, const int* in, int n, int rounds) {
    __shared__ int cell;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0) cell = 0;
    __syncthreads();
    if (i < n) atomicAdd(&cell, mix(in[i], rounds));
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = cell;
}
