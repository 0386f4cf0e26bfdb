// Producer/consumer with mbarriers, bulk copies, setmaxnreg and WGMMA whose A operand sits in registers.
// One producer warp group gives registers away and feeds a ring of STAGES blocks of B by bulk copy; the two
// consumer warp groups take registers and multiply. Launch with 384 threads and SHARED bytes (see manifest).
//
// C[128, 64] += sum over steps of A[step][128, 16] * B[step][16, 64]. A is read by the consumers from global
// memory in the fragment layout of m64k16. B is stored as two 8 x 64 core-matrix rows, no swizzle, so that a
// block can be copied in one piece.
#include <stdint.h>

static constexpr int STAGES = 4;
static constexpr int BLOCK = 16 * 64 * 2;  // bytes of one block of B

__device__ __forceinline__ uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void wait(uint32_t barrier, uint32_t phase) {
    asm volatile(
        "{\n.reg .pred done;\nagain:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(barrier), "r"(phase)
        : "memory");
}

// Shared-memory matrix descriptor, no swizzle; offsets in bytes (PTX ISA, asynchronous warpgroup-level matrix).
__device__ __forceinline__ uint64_t descriptor(uint32_t address, uint32_t leading, uint32_t stride) {
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32;
}

extern "C" __global__ void __launch_bounds__(384, 1)
    warp_specialised(float* out, const uint4* a, const unsigned char* b, int steps) {
    extern __shared__ __align__(1024) unsigned char ring[];
    __shared__ __align__(8) uint64_t full[STAGES], empty[STAGES];
    int group = threadIdx.x / 128, t = threadIdx.x % 128;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full[s])));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 256;" ::"r"(shared_address(&empty[s])));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (t == 0) {
            for (int k = 0; k < steps; ++k) {
                int s = k % STAGES;
                if (k >= STAGES) wait(shared_address(&empty[s]), (k / STAGES - 1) & 1);
                uint32_t bar = shared_address(&full[s]);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(BLOCK) : "memory");
                asm volatile(
                    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                        shared_address(ring + s * BLOCK)),
                    "l"(b + (size_t)k * BLOCK), "r"(BLOCK), "r"(bar)
                    : "memory");
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        float c[32];
        for (int i = 0; i < 32; ++i) c[i] = 0.0f;
        const uint4* mine = a + (size_t)(group - 1) * 128 + t;
        for (int k = 0; k < steps; ++k) {
            int s = k % STAGES;
            uint4 f = mine[(size_t)k * 256];
            wait(shared_address(&full[s]), (k / STAGES) & 1);
            uint64_t desc = descriptor(shared_address(ring + s * BLOCK), 1024, 128);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            asm volatile(
                "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,"
                "%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, 1, 1, 1, 0;"
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]),
                  "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]),
                  "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]),
                  "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
                : "r"(f.x), "r"(f.y), "r"(f.z), "r"(f.w), "l"(desc));
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&empty[s])) : "memory");
        }
        float* o = out + (size_t)(group - 1) * 64 * 64;
        for (int i = 0; i < 32; ++i) o[i * 128 + t] = c[i];
    }
}
