// The layout of tvm 0.27's own objects (memory_manager.h); this library needs nothing else of them.
// `symalloc.pool.storage_fault` compares it with what TVM makes.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/object.h>

#include <cstddef>
#include <cstring>
#include <string>

namespace symalloc {

constexpr int kFirstType = 5300;  // allocator types from here on are pools; 1 and 2 are TVM's own

// As tvm::runtime::memory::Buffer.
struct VmBuffer {
  void* data;
  size_t size;
  DLDevice device;
  int alloc_type;
};

// As tvm::runtime::memory::Allocator: the same virtual functions in the same order, then the type.
class VmAllocator {
 public:
  explicit VmAllocator(int type) : type_(type) {}
  virtual ~VmAllocator() = default;
  virtual VmBuffer Alloc(DLDevice device, size_t nbytes, size_t alignment, DLDataType dtype) = 0;
  virtual VmBuffer Alloc(DLDevice device, tvm::ffi::Shape shape, DLDataType dtype, const std::string& scope) = 0;
  virtual void* CreateView(const VmBuffer& buffer, tvm::ffi::Shape, DLDataType, const std::string&) = 0;
  virtual void FreeView(DLDevice device, void* data) = 0;
  virtual void Free(const VmBuffer& buffer) = 0;
  virtual void Clear() = 0;
  virtual size_t UsedMemory() const = 0;

 protected:
  virtual bool AllowMemoryScope(const std::string& scope) const = 0;

  int type_;
};

// As tvm::runtime::memory::StorageObj, whose type key is "vm.Storage".
struct VmStorage : public tvm::ffi::Object {
  VmBuffer buffer;
  VmAllocator* allocator;
};

// The type index of storages.
inline int32_t StorageType() {
  static const int32_t type = [] {
    int32_t index;
    TVMFFIByteArray key{"vm.Storage", std::strlen("vm.Storage")};
    TVM_FFI_CHECK_SAFE_CALL(TVMFFITypeKeyToIndex(&key, &index));
    return index;
  }();
  return type;
}

// nullptr where `value` is no storage.
inline const VmStorage* AsStorage(const tvm::ffi::AnyView& value) {
  return value.type_index() == StorageType() ? static_cast<const VmStorage*>(value.as<tvm::ffi::Object>()) : nullptr;
}

}  // namespace symalloc
