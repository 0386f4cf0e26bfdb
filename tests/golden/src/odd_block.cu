// A CTA of 80 threads: the last warp is half empty. Launch with exactly 80 threads.
extern "C" __global__ void __launch_bounds__(80) odd_block(float* out, const float* in, int n) {
    __shared__ float part[80];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += 80) sum += in[blockIdx.x * n + i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 64; half > 0; half >>= 1) {
        if (threadIdx.x < half && threadIdx.x + half < 80) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}
