// Nearly all 255 general registers are live in the loop, and the CTA is small enough that they may be.
extern "C" __global__ void __launch_bounds__(128) many_registers(float* out, const float* in, int n) {
    float a[14][14], x[14], y[14];
    int t = blockIdx.x * blockDim.x + threadIdx.x;
#pragma unroll
    for (int i = 0; i < 14; ++i)
#pragma unroll
        for (int j = 0; j < 14; ++j) a[i][j] = 0.0f;
    for (int k = 0; k < n; ++k) {
#pragma unroll
        for (int i = 0; i < 14; ++i) {
            x[i] = in[(k * 28 + i) * 128 + t];
            y[i] = in[(k * 28 + 14 + i) * 128 + t];
        }
#pragma unroll
        for (int i = 0; i < 14; ++i)
#pragma unroll
            for (int j = 0; j < 14; ++j) a[i][j] = fmaf(x[i], y[j], a[i][j]);
    }
#pragma unroll
    for (int i = 0; i < 14; ++i)
#pragma unroll
        for (int j = 0; j < 14; ++j) out[(i * 14 + j) * 128 + t] = a[i][j];
}
