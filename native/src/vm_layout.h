// What this library must know of tvm 0.27's own objects (memory_manager.h): their layout, nothing else.
#pragma once

#include <tvm/ffi/object.h>

#include <cstddef>

namespace symalloc {

constexpr int kFirstType = 5300;  // allocator types from here on are pools; 1 and 2 are TVM's own

// As tvm::runtime::memory::Buffer.
struct VmBuffer {
  void* data;
  size_t size;
  DLDevice device;
  int alloc_type;
};

// As tvm::runtime::memory::StorageObj, whose type key is "vm.Storage".
struct VmStorage : public tvm::ffi::Object {
  VmBuffer buffer;
  void* allocator;
};

}  // namespace symalloc
