// The memory manager keeps each allocator for as long as the process, and does not say when a machine goes.  So an
// allocator knows its pool weakly.  A pool is kept by its users (pool_use.h) and by each storage that it has served.
#include "bindings/vm_allocator.h"

#include <tvm/ffi/error.h>

#include <cstring>
#include <new>
#include <utility>

#include "bindings/tensor_placement.h"

namespace symalloc {

namespace ffi = tvm::ffi;

namespace {

constexpr int64_t kAlignment = 64;

using Unsafe = ffi::details::ObjectUnsafe;

// not thread_local: that costs a call
__attribute__((tls_model("initial-exec"))) __thread const void* last_served = nullptr;
__attribute__((tls_model("initial-exec"))) __thread std::string_view current_tag;

void* Take(PoolObj* pool, int64_t nbytes, std::string_view tag) {
  return Translated([&] { return pool->Take(nbytes, kAlignment, tag); });
}

// As TVM's, but for who frees the memory: a call less.
struct PoolStorage : public VmStorage {
  PoolStorage(const VmBuffer& served, PoolAllocator* by) {
    buffer = served;
    allocator = by;
  }
  ~PoolStorage() { static_cast<PoolAllocator*>(allocator)->Free(buffer); }

  static int32_t RuntimeTypeIndex() { return StorageType(); }
};

// By number - kFirstType.
std::atomic<PoolType*> pool_types[kMostTypes];

}  // namespace

TagScope::TagScope(std::string_view tag) { current_tag = tag; }
TagScope::~TagScope() { current_tag = {}; }

const void* LastServed() { return last_served; }
void ForgetLastServed() { last_served = nullptr; }

int64_t StorageBytes(ffi::ShapeView shape, DLDataType dtype) {
  int64_t nbytes = Bytes(shape, dtype);
  if (nbytes >= 0) return nbytes;
  throw ffi::Error("BoundsError", "a storage, " + Text(shape, dtype) +
                                      ", has a negative size, or more bytes than 64 bits can count", "");
}

// What `take` takes from the pool, which the buffer keeps until it is freed.
template <typename TakeFrom>
VmBuffer PoolAllocator::Served(size_t nbytes, DLDevice device, TakeFrom take) {
  ffi::ObjectPtr<PoolObj> pool = pool_type_->pool.lock();
  if (pool == nullptr || pool->users.load(std::memory_order_relaxed) == 0) {
    pool_type_->outlived = true;
    throw ffi::Error("PoolUsageError",
                     "the pool of this machine is gone: a machine that was not made by relax.VirtualMachine with "
                     "symalloc.memory_cfg does not keep its pool", "");
  }
  void* data = take(pool.get());
  Unsafe::MoveObjectPtrToTVMFFIObjectPtr(std::move(pool));
  last_served = data;
  return VmBuffer{data, nbytes, device, type_};
}

VmBuffer PoolAllocator::Alloc(DLDevice device, size_t nbytes, size_t alignment, DLDataType) {
  return Served(nbytes, device, [&](PoolObj* pool) {
    return Translated([&] { return pool->Alloc(static_cast<int64_t>(nbytes), static_cast<int64_t>(alignment), ""); });
  });
}

VmBuffer PoolAllocator::Alloc(DLDevice device, ffi::Shape shape, DLDataType dtype, const std::string& scope) {
  if (!AllowMemoryScope(scope)) {
    throw ffi::Error("ValueError", "the pool holds memory of scope `global` only, not `" + scope + "`", "");
  }
  int64_t nbytes = StorageBytes(shape, dtype);
  return Served(static_cast<size_t>(nbytes), device, [&](PoolObj* pool) { return Take(pool, nbytes, current_tag); });
}

void* PoolAllocator::CreateView(const VmBuffer& buffer, ffi::Shape, DLDataType, const std::string&) {
  return buffer.data;
}

void PoolAllocator::Free(const VmBuffer& buffer) {
  PoolObj* pool = this->pool();
  FreeQuietly(&pool->pool, buffer.data, static_cast<int64_t>(buffer.size));
  Unsafe::DecRefObjectHandle(pool);
}

void PoolAllocator::Clear() {
  if (ffi::ObjectPtr<PoolObj> pool = pool_type_->pool.lock()) pool->pool.Trim();
}

size_t PoolAllocator::UsedMemory() const {
  ffi::ObjectPtr<PoolObj> pool = pool_type_->pool.lock();
  return pool == nullptr ? 0 : static_cast<size_t>(pool->pool.statistics().reserved);
}

// std::string compares by two calls, which are a twentieth of all that a storage costs.
bool PoolAllocator::AllowMemoryScope(const std::string& scope) const {
  return scope.empty() || (scope.size() == kScope.size() && std::memcmp(scope.data(), kScope.data(), kScope.size()) == 0);
}

ffi::ObjectRef PoolAllocator::MakeStorage(int64_t nbytes, std::string_view tag) {
  auto pool = Unsafe::ObjectPtrFromUnowned<PoolObj>(this->pool());  // a callback may have the machine let it go
  VmBuffer served{Take(pool.get(), nbytes, tag), static_cast<size_t>(nbytes), DLDevice{kDLCPU, 0}, type_};
  Unsafe::MoveObjectPtrToTVMFFIObjectPtr(std::move(pool));
  return Translated(
      [&] {
        try {
          return ffi::ObjectRef(ffi::make_object<PoolStorage>(served, this));
        } catch (const std::bad_alloc&) {
          Free(served);
          throw;
        }
      },
      "a storage");
}

PoolType* TypeOf(int number) {
  size_t index = static_cast<size_t>(number) - kFirstType;
  return index < kMostTypes ? pool_types[index].load(std::memory_order_acquire) : nullptr;
}

PoolType* AddType(int number) {
  auto* type = new PoolType(number);
  pool_types[static_cast<size_t>(number) - kFirstType].store(type, std::memory_order_release);
  return type;
}

PoolAllocator* AllocatorOf(const VmStorage& storage) {
  PoolType* type = TypeOf(storage.buffer.alloc_type);
  PoolAllocator* made = type == nullptr ? nullptr : type->allocator.load(std::memory_order_acquire);
  return made == storage.allocator ? made : nullptr;
}

PoolObj* PoolOf(const VmStorage& storage) {
  PoolAllocator* allocator = AllocatorOf(storage);
  return allocator == nullptr ? nullptr : allocator->pool();
}

}  // namespace symalloc
