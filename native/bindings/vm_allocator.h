// Allocators of TVM's memory manager that serve from a pool.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/object.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "bindings/pool_object.h"
#include "bindings/vm_layout.h"

namespace symalloc {

constexpr std::string_view kScope = "global";  // the only one that a pool has memory of

// The storage that the calling thread allocates through TVM has this tag for as long as it lives.
class TagScope {
 public:
  explicit TagScope(std::string_view tag);
  TagScope(const TagScope&) = delete;
  TagScope& operator=(const TagScope&) = delete;
  ~TagScope();
};

class PoolAllocator;

// A type of allocators, for one pool at a time.
struct PoolType {
  explicit PoolType(int number) : number(number) {}

  const int number;
  std::atomic<PoolAllocator*> allocator{nullptr};  // the memory manager owns it
  tvm::ffi::WeakObjectPtr<PoolObj> pool;           // changed while no machine has this type
  std::atomic<PoolObj*> known{nullptr};            // the same; sound while a user or a storage keeps the pool
  std::atomic<bool> outlived{false};               // a machine has this type that no pool knows of: it is not used again
};

// The bytes of a storage; throws a BoundsError where there is no such number.
int64_t StorageBytes(tvm::ffi::ShapeView shape, DLDataType dtype);

// Of cpu(0).
class PoolAllocator final : public VmAllocator {
 public:
  explicit PoolAllocator(PoolType* type) : VmAllocator(type->number), pool_type_(type) {}

  VmBuffer Alloc(DLDevice device, size_t nbytes, size_t alignment, DLDataType) override;
  VmBuffer Alloc(DLDevice device, tvm::ffi::Shape shape, DLDataType dtype, const std::string& scope) override;
  void* CreateView(const VmBuffer& buffer, tvm::ffi::Shape, DLDataType, const std::string&) override;
  void FreeView(DLDevice, void*) override {}
  void Free(const VmBuffer& buffer) override;
  void Clear() override;
  size_t UsedMemory() const override;

  // Sound while a user or a storage keeps it.
  PoolObj* pool() const { return pool_type_->known.load(std::memory_order_relaxed); }

  // A storage for a machine that keeps the pool.  TVM makes the same, by way of `Alloc`.
  tvm::ffi::ObjectRef MakeStorage(int64_t nbytes, std::string_view tag);

 protected:
  bool AllowMemoryScope(const std::string& scope) const override;

 private:
  template <typename TakeFrom>
  VmBuffer Served(size_t nbytes, DLDevice device, TakeFrom take);

  PoolType* pool_type_;
};

// The allocator of a pool that has served `storage`; nullptr where that was another library.
PoolAllocator* AllocatorOf(const VmStorage& storage);

// The pool that has served `storage`; nullptr where that was another library.
PoolObj* PoolOf(const VmStorage& storage);

// The type with this number; nullptr where there is none.
PoolType* TypeOf(int number);

constexpr size_t kMostTypes = 1 << 16;  // at a time

// Makes a type with a number from kFirstType on that none has had, one thread at a time; they stay for as long as the
// process.
PoolType* AddType(int number);

// The memory that the calling thread's last allocation from a pool's allocator has got; nullptr: none since `Forget`.
const void* LastServed();
void ForgetLastServed();

}  // namespace symalloc
