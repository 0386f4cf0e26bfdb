// Tiled TMA load and store through a tensor map (UTMALDG, UTMASTG), one elected thread, mbarrier wait.
// Launch with 128 threads; map describes a bf16 tensor of rows of 64, box 64 x 64.
#include <stdint.h>

struct alignas(64) TensorMap {
    unsigned char opaque[128];
};

extern "C" __global__ void __launch_bounds__(128)
    tma_tile(const __grid_constant__ TensorMap source, const __grid_constant__ TensorMap target, int tiles) {
    __shared__ __align__(1024) unsigned short tile[64 * 64];
    __shared__ __align__(8) uint64_t barrier;
    uint32_t bar = (uint32_t)__cvta_generic_to_shared(&barrier);
    uint32_t data = (uint32_t)__cvta_generic_to_shared(tile);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    for (int k = 0; k < tiles; ++k) {
        int row = (blockIdx.x * tiles + k) * 64;
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(8192) : "memory");
            asm volatile(
                "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                    data),
                "l"(&source), "r"(0), "r"(row), "r"(bar)
                : "memory");
        }
        asm volatile(
            "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(
                bar),
            "r"(k & 1)
            : "memory");
        for (int i = threadIdx.x; i < 64 * 64; i += 128) tile[i] ^= 0x8000;
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        if (threadIdx.x == 0) {
            asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&target), "r"(0),
                         "r"(row), "r"(data)
                         : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
