// TVM 0.27's allocator of storages, declared again: only the order and the signatures of its virtual functions
// matter.  The wheel's own header includes others that the wheel does not ship.
#pragma once

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/device.h>

#include <string>

namespace tvm::runtime::memory {

enum AllocatorType : int {};

struct Buffer {
  void* data;
  size_t size;
  DLDevice device;
  AllocatorType alloc_type;
};

class Allocator {
 public:
  explicit Allocator(AllocatorType type) : type_(type) {}
  virtual ~Allocator() = default;
  virtual Buffer Alloc(DLDevice device, size_t nbytes, size_t alignment, DLDataType hint) = 0;
  virtual Buffer Alloc(DLDevice device, ffi::Shape shape, DLDataType hint, const std::string& scope);
  virtual void* CreateView(const Buffer& buffer, ffi::Shape shape, DLDataType hint, const std::string& scope);
  virtual void FreeView(DLDevice device, void* data);
  virtual void Free(const Buffer& buffer) = 0;
  virtual void Clear();
  virtual size_t UsedMemory() const = 0;

 protected:
  virtual bool AllowMemoryScope(const std::string& scope) const;

 private:
  AllocatorType type_;
};

}  // namespace tvm::runtime::memory
