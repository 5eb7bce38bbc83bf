// An allocator for TVM's virtual machine that keeps a list of what is taken from it and given back.
//
// TVM 0.27 asks a global function named "DeviceAllocator." for allocators of a CPU or a CUDA device that it
// does not know by itself; a machine opened with memory_cfg={device: kType} then takes every storage from here.
// Blocks are filled with 0xFF (NaN, -1) when they are taken and before they are given back, so that a result
// computed from memory that somebody else reuses never looks right by chance.
//
// Needs the headers of tvm-ffi, and libtvm_runtime; for a CUDA device its driver's library.

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/device.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "vm_allocator.h"

namespace {

using tvm::ffi::Array;
using tvm::ffi::Shape;
using tvm::runtime::memory::Allocator;
using tvm::runtime::memory::AllocatorType;
using tvm::runtime::memory::Buffer;

constexpr int kType = 33;
constexpr size_t kAlignment = 64;  // what TVM's own allocators give
constexpr unsigned char kPoison = 0xFF;

enum Kind : int64_t { kFree = 0, kStorage = 1, kTable = 2 };

// What happened since the list was last asked for: kind, block, device index, bytes; four numbers each.
class Events {
 public:
  void Taken(Kind kind, const void* data, int device, size_t nbytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    int64_t id = next_++;
    ids_[data] = id;
    Add(kind, id, device, nbytes);
  }

  void Given(const void* data, int device, size_t nbytes) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = ids_.find(data);
    Add(kFree, found->second, device, nbytes);
    ids_.erase(found);
  }

  Array<int64_t> Take() {
    std::lock_guard<std::mutex> lock(mutex_);
    Array<int64_t> result(list_.begin(), list_.end());
    list_.clear();
    return result;
  }

 private:
  void Add(Kind kind, int64_t id, int device, size_t nbytes) {
    list_.insert(list_.end(), {kind, id, device, static_cast<int64_t>(nbytes)});
  }

  std::mutex mutex_;
  int64_t next_ = 0;
  std::unordered_map<const void*, int64_t> ids_;
  std::vector<int64_t> list_;
};

// Never destroyed: TVM gives blocks back while the process ends.
Events& TheEvents() {
  static auto* events = new Events();
  return *events;
}

// Memory of a CPU.
struct HostMemory {
  static void* Take(size_t nbytes, size_t alignment) { return std::aligned_alloc(alignment, nbytes); }
  static void Fill(void* data, size_t nbytes) { std::memset(data, kPoison, nbytes); }
  static void Give(void* data) { std::free(data); }
};

// Memory of a CUDA device, in the context that is current.  Functions of the driver, which return 0 if all went
// well; filling is in order with the kernels of the default stream, and giving back waits for them.
class CudaMemory {
 public:
  static void* Take(size_t nbytes, size_t /*256 bytes*/) {
    static auto* take = Function<int(uint64_t*, size_t)>("cuMemAlloc_v2");
    uint64_t address = 0;
    Check(take(&address, nbytes), nbytes);
    return reinterpret_cast<void*>(address);
  }

  static void Fill(void* data, size_t nbytes) {
    static auto* fill = Function<int(uint64_t, unsigned char, size_t)>("cuMemsetD8_v2");
    if (nbytes > 0) Check(fill(reinterpret_cast<uint64_t>(data), kPoison, nbytes), nbytes);
  }

  static void Give(void* data) {
    static auto* give = Function<int(uint64_t)>("cuMemFree_v2");
    Check(give(reinterpret_cast<uint64_t>(data)), 0);
  }

 private:
  template <typename Signature>
  static Signature* Function(const char* name) {
    static void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    void* found = driver == nullptr ? nullptr : dlsym(driver, name);
    if (found == nullptr) TVM_FFI_THROW(RuntimeError) << "there is no CUDA driver with " << name;
    return reinterpret_cast<Signature*>(found);
  }

  static void Check(int status, size_t nbytes) {
    if (status == 0) return;
    TVM_FFI_THROW(RuntimeError) << "the CUDA driver returned " << status << " for " << nbytes << " bytes";
  }
};

class CountingAllocator final : public Allocator {
 public:
  CountingAllocator() : Allocator(static_cast<AllocatorType>(kType)) {}

  // a tensor that the machine makes for itself: the table in which it keeps symbolic sizes
  Buffer Alloc(DLDevice device, size_t nbytes, size_t alignment, DLDataType) final {
    return Take(kTable, device, nbytes, alignment);
  }

  // a storage: what memory planners decide
  Buffer Alloc(DLDevice device, Shape shape, DLDataType hint, const std::string&) final {
    size_t elements = 1;
    for (int64_t extent : shape) elements *= static_cast<size_t>(extent);
    return Take(kStorage, device, elements * ((hint.bits * hint.lanes + 7) / 8), kAlignment);
  }

  void Free(const Buffer& buffer) final {
    TheEvents().Given(buffer.data, buffer.device.device_id, buffer.size);
    if (OnHost(buffer.device)) {
      Give<HostMemory>(buffer.data, buffer.size);
    } else {
      Give<CudaMemory>(buffer.data, buffer.size);
    }
  }

  size_t UsedMemory() const final { return 0; }

 private:
  static bool OnHost(DLDevice device) { return device.device_type == kDLCPU; }

  static Buffer Take(Kind kind, DLDevice device, size_t nbytes, size_t alignment) {
    // a block of its own even for nothing: blocks are known by their address
    size_t wanted = std::max<size_t>((nbytes + alignment - 1) / alignment * alignment, alignment);
    void* data =
        OnHost(device) ? Taken<HostMemory>(wanted, alignment) : Taken<CudaMemory>(wanted, alignment);
    TheEvents().Taken(kind, data, device.device_id, nbytes);
    return Buffer{data, nbytes, device, static_cast<AllocatorType>(kType)};
  }

  template <typename Memory>
  static void* Taken(size_t nbytes, size_t alignment) {
    void* data = Memory::Take(nbytes, alignment);
    if (data == nullptr) throw std::bad_alloc();
    Memory::Fill(data, nbytes);
    return data;
  }

  template <typename Memory>
  static void Give(void* data, size_t nbytes) {
    Memory::Fill(data, nbytes);
    Memory::Give(data);
  }
};

// Allocators of other types are the business of whoever was registered before.
void Register() {
  auto before = tvm::ffi::Function::GetGlobal("DeviceAllocator.");
  tvm::ffi::Function::SetGlobal(
      "DeviceAllocator.", tvm::ffi::Function::FromTyped([before](DLDevice device, int type) -> void* {
        if (type == kType) return static_cast<Allocator*>(new CountingAllocator());
        return before ? (*before)(device, type).cast<void*>() : nullptr;
      }),
      true);
}

TVM_FFI_STATIC_INIT_BLOCK() {
  tvm::ffi::reflection::GlobalDef().def("symalloc.measure.events", []() { return TheEvents().Take(); });
  Register();
}

}  // namespace
