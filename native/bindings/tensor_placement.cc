#include "bindings/tensor_placement.h"

#include <tvm/ffi/dtype.h>
#include <tvm/ffi/string.h>

namespace symalloc {

namespace ffi = tvm::ffi;

namespace {

constexpr int64_t kAlignment = 64;  // of data pointers, which TVM's kernels take for granted

std::string Name(const TensorRequest& asked) {
  return asked.name == nullptr ? "" : std::string(asked.name->cast<ffi::String>());
}

[[noreturn]] void Refuse(const TensorRequest& asked, const std::string& why) {
  std::string tensor = asked.name == nullptr ? "a tensor" : "tensor `" + Name(asked) + "`";
  throw ffi::Error("BoundsError", tensor + ", " + Text(asked.shape, asked.dtype) + ", " + why, "");
}

void Check(const TensorRequest& asked, int64_t nbytes, int64_t size) {
  if (nbytes >= 0 && asked.offset >= 0 && asked.offset <= size && nbytes <= size - asked.offset) return;
  std::string on = " on a storage of " + std::to_string(size) + " bytes";
  std::string at = " at offset " + std::to_string(asked.offset);
  if (nbytes < 0) Refuse(asked, "has a negative extent, or more bytes than 64 bits can count");
  if (asked.offset < 0) Refuse(asked, "is placed" + at + on + ": in front of it");
  int64_t beyond;
  std::string ends = __builtin_add_overflow(asked.offset - size, nbytes, &beyond)
                         ? ""
                         : ": it would end " + std::to_string(beyond) + " bytes behind it";
  Refuse(asked, "needs " + std::to_string(nbytes) + " bytes" + at + on + ends);
}

// The memory of a tensor that is placed.  An aligned offset goes into the data pointer, so that every kernel
// takes the tensor and R.memory.ensure_zero_offset finds nothing to do; another stays where TVM checks it.
struct Borrowed {
  ffi::ObjectRef holder;
  char* data;
  int64_t offset;

  void AllocData(DLTensor* tensor) {
    bool folded = offset % kAlignment == 0;
    tensor->data = data + (folded ? offset : 0);
    tensor->byte_offset = static_cast<uint64_t>(folded ? 0 : offset);
  }
  void FreeData(DLTensor*) {}
};

}  // namespace

std::string Text(ffi::ShapeView shape, DLDataType dtype) {
  std::string text(ffi::DLDataTypeToString(dtype));
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "[" : ", ") + std::to_string(shape[i]);
  return text + (shape.size() == 0 ? "[]" : "]");
}

int64_t Bytes(ffi::ShapeView shape, DLDataType dtype) {
  int64_t bits = int64_t{dtype.bits} * dtype.lanes;
  for (int64_t extent : shape) {
    if (extent < 0) return -1;
  }
  for (int64_t extent : shape) {
    if (extent == 0) return 0;
  }
  for (int64_t extent : shape) {
    if (__builtin_mul_overflow(bits, extent, &bits)) return -1;
  }
  return bits / 8 + (bits % 8 != 0);
}

// In guard mode a tensor has pages of its own, so that its edges are watched within the storage too.
ffi::Tensor PlaceTensor(const BackingMemory& ground, const TensorRequest& asked) {
  Check(asked, Bytes(asked.shape, asked.dtype), ground.size);
  if (ground.pool->pool.guard() != nullptr) {
    PooledData data{PoolRef(ffi::details::ObjectUnsafe::ObjectPtrFromUnowned<PoolObj>(ground.pool)), asked.name == nullptr ? Text(asked.shape, asked.dtype) : Name(asked)};
    return ffi::Tensor::FromNDAlloc(data, asked.shape, asked.dtype, ground.device);
  }
  Borrowed borrowed{ground.holder.cast<ffi::ObjectRef>(), static_cast<char*>(ground.data), asked.offset};
  return ffi::Tensor::FromNDAlloc(borrowed, asked.shape, asked.dtype, ground.device);
}

}  // namespace symalloc
