// Divergent if/else and a divergent loop: BSSY/BSYNC regions, nested.
extern "C" __global__ void divergent(float* out, const float* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = in[i];
    int steps = 0;
    while (x > 1.0f && steps < n) {
        if (threadIdx.x & 1) {
            x = sqrtf(x) * in[(i + steps) % n];
            if (x > 3.0f) x = logf(x);
        } else {
            x = x * 0.5f + sinf(x) / (1.0f + in[steps]);
        }
        ++steps;
        __syncwarp();
    }
    out[i] = x + steps;
}
