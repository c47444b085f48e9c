// PyTorch takes tensors that have a shape and no storage for tensors of one GPU: what autograd asks of the device while it
// walks a graph is answered, and nothing is done. A build with CUDA asks the driver, which knows of no GPU: these answer first.
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

// After PyTorch is imported: a build with CUDA has set a guard of its own by then.
extern "C" void guard_no_gpu() { c10::impl::registerDeviceGuard(kGpu, new NoGpuGuard()); }

namespace at {
namespace {

struct NoGpuHooks final : CUDAHooksInterface {
  explicit NoGpuHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return 1; }
  DeviceIndex getCurrentDevice() const override { return 0; }
};

}  // namespace

// The name that PyTorch looks up; before PyTorch's own, which may not take its place.
C10_REGISTER_CLASS_WITH_PRIORITY(CUDAHooksRegistry, CUDAHooks, c10::REGISTRY_PREFERRED, NoGpuHooks)

}  // namespace at
