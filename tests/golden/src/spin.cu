// A spin loop with back-off: warp 1 waits until warp 0 has published. Launch with 64 threads.
extern "C" __global__ void __launch_bounds__(64) spin(unsigned* flag, unsigned* out, unsigned rounds) {
    unsigned* mine = flag + blockIdx.x;
    for (unsigned r = 1; r <= rounds; ++r) {
        if (threadIdx.x == 0) {
            out[blockIdx.x] = r * 7;
            __threadfence();
            atomicExch(mine, r);
        } else if (threadIdx.x == 32) {
            while (atomicAdd(mine, 0u) < r) __nanosleep(40);
            out[gridDim.x + blockIdx.x] = *(volatile unsigned*)(out + blockIdx.x);
        }
        __syncthreads();
    }
}
