// Tensors placed on memory that something else holds, with exact bounds.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>

#include <cstdint>
#include <string>

#include "bindings/pool_object.h"

namespace symalloc {

// Bytes of a tensor; -1 where an extent is negative or the count is beyond 64 bits.
int64_t Bytes(tvm::ffi::ShapeView shape, DLDataType dtype);

// "float32[5, 16]"
std::string Text(tvm::ffi::ShapeView shape, DLDataType dtype);

// Memory that tensors are placed on.
struct BackingMemory {
  void* data;
  int64_t size;  // bytes
  DLDevice device;
  PoolObj* pool;                   // whose it is
  const tvm::ffi::AnyView& holder;  // keeps it
};

// A tensor that is wanted.
struct TensorRequest {
  int64_t offset;  // bytes
  tvm::ffi::ShapeView shape;
  DLDataType dtype;
  const tvm::ffi::AnyView* name;  // a string; nullptr: not known
};

// The tensor; it keeps the holder.  Throws a BoundsError where some byte of it would lie outside.
tvm::ffi::Tensor PlaceTensor(const BackingMemory& ground, const TensorRequest& asked);

}  // namespace symalloc
