// A PyTorch without CUDA takes tensors that have a shape and no storage for tensors of one GPU: what autograd asks of
// the device while it walks a graph is answered, and nothing is done.
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

constexpr auto kGpu = c10::DeviceType::CUDA;

struct NoGpuGuard final : c10::impl::NoOpDeviceGuardImpl<kGpu> {
  c10::Device getDevice() const override { return {kGpu, 0}; }
  c10::Device exchangeDevice(c10::Device) const override { return {kGpu, 0}; }
  c10::Stream getStream(c10::Device) const noexcept override { return only(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return only(); }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }

 private:
  static c10::Stream only() { return c10::Stream(c10::Stream::DEFAULT, {kGpu, 0}); }
};

}  // namespace

namespace c10::impl {
C10_REGISTER_GUARD_IMPL(CUDA, NoGpuGuard)
}

namespace at {

// PyTorch looks the hooks up by the name of this class.
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
};
REGISTER_CUDA_HOOKS(CUDAHooks)

}  // namespace at
