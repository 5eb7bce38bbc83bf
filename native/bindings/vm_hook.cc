// TVM's memory manager asks a global function for allocators of types that it does not know: the function
// is named "DeviceAllocator." and the device's suffix, which is empty for a CPU.  It answers with a pointer
// to an object that must look like TVM's allocators; nothing of libtvm_runtime is linked.
#include "bindings/vm_hook.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bindings/tensor_placement.h"
#include "bindings/vm_layout.h"
#include "bindings/vm_builtins.h"

namespace symalloc {

namespace ffi = tvm::ffi;

namespace {

constexpr int64_t kAlignment = 64;

class PoolAllocator final : public VmAllocator {
 public:
  PoolAllocator(PoolRef pool, int type) : VmAllocator(type), pool_(std::move(pool)) {}

  VmBuffer Alloc(DLDevice device, size_t nbytes, size_t alignment, DLDataType) override {
    void* data = Translated([&] { return pool_->Alloc(nbytes, alignment, false, ""); });
    return VmBuffer{data, nbytes, device, type_};
  }

  VmBuffer Alloc(DLDevice device, ffi::Shape shape, DLDataType dtype, const std::string& scope) override {
    if (!AllowMemoryScope(scope)) {
      throw ffi::Error("ValueError", "the pool holds memory of scope `global` only, not `" + scope + "`", "");
    }
    int64_t nbytes = Bytes(shape, dtype);
    if (nbytes < 0) {
      throw ffi::Error("BoundsError", "a storage, " + Text(shape, dtype) +
                                          ", has a negative size, or more bytes than 64 bits can count", "");
    }
    const AllocationHint* hint = CurrentHint();
    if (hint == nullptr) return Alloc(device, static_cast<size_t>(nbytes), kAlignment, dtype);
    void* data = Translated([&] { return pool_->Take(nbytes, kAlignment, hint->escapes, hint->tag); });
    return VmBuffer{data, static_cast<size_t>(nbytes), device, type_};
  }

  void* CreateView(const VmBuffer& buffer, ffi::Shape, DLDataType, const std::string&) override {
    return buffer.data;
  }
  void FreeView(DLDevice, void*) override {}

  void Free(const VmBuffer& buffer) override {
    FreeQuietly(&pool_->pool, buffer.data, static_cast<int64_t>(buffer.size));
  }

  void Clear() override { pool_->pool.Trim(); }
  size_t UsedMemory() const override { return static_cast<size_t>(pool_->pool.statistics().reserved); }

  const PoolRef& pool() const { return pool_; }

 protected:
  bool AllowMemoryScope(const std::string& scope) const override { return scope.empty() || scope == "global"; }

 private:
  PoolRef pool_;
};

constexpr const char* kAllocators = "DeviceAllocator.";

struct Hook {
  std::mutex mutex;
  std::vector<PoolRef> pools;           // the pool of type kFirstType + i
  std::vector<const VmAllocator*> allocators;  // all that were made
  std::atomic<int> count{0};            // of pools
  std::optional<ffi::Function> before;  // whose allocators are of other types

  static Hook& Global() {
    static Hook* hook = new Hook();  // outlives the memory manager
    return *hook;
  }

  void* Make(DLDevice device, int type) {
    std::lock_guard<std::mutex> lock(mutex);
    if (device.device_type == kDLCPU && IsPoolType(type)) {
      auto* made = new PoolAllocator(pools[type - kFirstType], type);  // the memory manager owns it
      allocators.push_back(made);
      return made;
    }
    return before.has_value() ? (*before)(device, type).cast<void*>() : nullptr;
  }
};

}  // namespace

const PoolRef& PoolOf(const VmAllocator* allocator) { return static_cast<const PoolAllocator*>(allocator)->pool(); }

bool IsPoolType(int type) {
  return type >= kFirstType && type - kFirstType < Hook::Global().count.load(std::memory_order_acquire);
}

bool PoolOwns(const void* data) {
  Hook& hook = Hook::Global();
  std::lock_guard<std::mutex> lock(hook.mutex);
  return std::any_of(hook.pools.begin(), hook.pools.end(), [data](const PoolRef& p) { return p->pool.owns(data); });
}

int64_t VmType(PoolRef pool) {
  Hook& hook = Hook::Global();
  std::lock_guard<std::mutex> lock(hook.mutex);
  if (hook.pools.empty()) {
    auto make = [](DLDevice device, int type) { return Hook::Global().Make(device, type); };
    hook.before = ffi::Function::GetGlobal(kAllocators);
    ffi::Function::SetGlobal(kAllocators, ffi::Function::FromTyped(make), true);
    ReplaceBuiltins();
  }
  for (size_t i = 0; i < hook.pools.size(); ++i) {
    if (hook.pools[i].same_as(pool)) return kFirstType + static_cast<int64_t>(i);
  }
  hook.pools.push_back(pool);
  hook.count.store(static_cast<int>(hook.pools.size()), std::memory_order_release);
  return kFirstType + static_cast<int64_t>(hook.pools.size()) - 1;
}

// Comparing this TVM's storages with vm_layout.h.
namespace {

// True where `allocator` was made for a type of `VmType`.
bool IsAllocator(const VmAllocator* allocator) {
  Hook& hook = Hook::Global();
  std::lock_guard<std::mutex> lock(hook.mutex);
  return std::find(hook.allocators.begin(), hook.allocators.end(), allocator) != hook.allocators.end();
}

// The first difference between `value`, a storage of `nbytes` bytes that the pool of `type` has served, and
// vm_layout.h; "" where there is none.
ffi::String StorageFault(ffi::AnyView value, int64_t type, int64_t nbytes) {
  const VmStorage* storage = AsStorage(value);
  if (storage == nullptr) return "what a program allocates is no vm.Storage but " + value.GetTypeKey();
  const VmBuffer& buffer = storage->buffer;
  if (buffer.alloc_type != type) return "a storage does not hold the type of its allocator where 0.27's does";
  if (buffer.size != static_cast<size_t>(nbytes)) return "a storage does not hold its size where 0.27's does";
  if (buffer.device.device_type != kDLCPU || buffer.device.device_id != 0) {
    return "a storage does not hold its device where 0.27's does";
  }
  if (!PoolOwns(buffer.data)) return "a storage does not hold its memory where 0.27's does";
  if (!IsAllocator(storage->allocator)) return "a storage does not hold its allocator where 0.27's does";
  return "";
}

// The bytes reserved by the allocator of `value`, a storage.
int64_t ReservedFor(ffi::AnyView value) {
  const VmStorage* storage = AsStorage(value);
  if (storage == nullptr) throw ffi::Error("TypeError", "expected a vm.Storage, not " + value.GetTypeKey(), "");
  return static_cast<int64_t>(storage->allocator->UsedMemory());
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef()
      .def("symalloc.pool.storage_fault", StorageFault)
      .def("symalloc.pool.reserved_for", ReservedFor);
}

}  // namespace symalloc
