// TVM checks that a tensor on a storage ends within it, in unsigned arithmetic: a negative offset, and a
// byte count beyond 64 bits, pass.  Its function that places tensors is replaced by one that checks exactly.
#include "vm_tensor.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <cstring>
#include <string>

#include "vm_hook.h"
#include "vm_layout.h"

namespace symalloc {

namespace ffi = tvm::ffi;

namespace {

constexpr const char* kStorage = "vm.Storage";
constexpr const char* kStock = "vm.builtin.alloc_tensor";
// the same, with the tensor's name as one more argument
constexpr const char* kNamed = "symalloc.pool.alloc_tensor";

std::string Text(ffi::ShapeView shape, DLDataType dtype) {
  std::string text(ffi::DLDataTypeToString(dtype));
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "[" : ", ") + std::to_string(shape[i]);
  return text + (shape.size() == 0 ? "[]" : "]");
}

// Bytes of a tensor; -1 where an extent is negative or the count is beyond 64 bits.
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

struct Request {
  const VmStorage* storage;
  int64_t offset;
  ffi::ShapeView shape;
  DLDataType dtype;
  int64_t nbytes;
  const ffi::AnyView* name;  // nullptr: not known

  std::string Name() const { return name == nullptr ? "" : std::string(name->cast<ffi::String>()); }
};

[[noreturn]] void Refuse(const Request& asked, const std::string& why) {
  std::string tensor = asked.name == nullptr ? "a tensor" : "tensor `" + asked.Name() + "`";
  throw ffi::Error("BoundsError", tensor + ", " + Text(asked.shape, asked.dtype) + ", " + why, "");
}

void Check(const Request& asked) {
  int64_t size = static_cast<int64_t>(asked.storage->buffer.size);
  bool inside = asked.offset >= 0 && asked.offset <= size && asked.nbytes <= size - asked.offset;
  if (inside && asked.nbytes >= 0) return;
  std::string on = " on a storage of " + std::to_string(size) + " bytes";
  std::string at = " at offset " + std::to_string(asked.offset);
  if (asked.nbytes < 0) Refuse(asked, "has a negative extent, or more bytes than 64 bits can count");
  if (asked.offset < 0) Refuse(asked, "is placed" + at + on + ": in front of it");
  int64_t beyond;
  std::string ends = __builtin_add_overflow(asked.offset - size, asked.nbytes, &beyond)
                         ? ""
                         : ": it would end " + std::to_string(beyond) + " bytes behind it";
  Refuse(asked, "needs " + std::to_string(asked.nbytes) + " bytes" + at + on + ends);
}

// A tensor on a storage, which it keeps.
struct Placed {
  ffi::ObjectRef storage;
  int64_t offset;

  void AllocData(DLTensor* tensor) {
    tensor->data = static_cast<const VmStorage*>(storage.get())->buffer.data;
    tensor->byte_offset = static_cast<uint64_t>(offset);
  }
  void FreeData(DLTensor*) {}
};

// In guard mode a tensor has pages of its own, so that its edges are watched within the storage too.
ffi::Tensor Made(const Request& asked, const ffi::AnyView& holder) {
  const VmStorage* storage = asked.storage;
  const PoolRef& pool = PoolOf(storage->allocator);
  if (pool->pool.guard() == nullptr) {
    Placed placed{holder.cast<ffi::ObjectRef>(), asked.offset};
    return ffi::Tensor::FromNDAlloc(placed, asked.shape, asked.dtype, storage->buffer.device);
  }
  PooledData data{pool, asked.name == nullptr ? Text(asked.shape, asked.dtype) : asked.Name()};
  return ffi::Tensor::FromNDAlloc(data, asked.shape, asked.dtype, storage->buffer.device);
}

struct Place {
  ffi::Function stock;
  int32_t storage_type;

  // (storage, offset, shape, dtype[, name])
  void operator()(const ffi::AnyView* args, int32_t count, ffi::Any* result) const {
    const VmStorage* storage = count >= 4 ? OfPool(args[0]) : nullptr;
    auto* shape = storage != nullptr ? args[2].as<ffi::ShapeObj>() : nullptr;
    if (shape == nullptr) {
      stock.CallPacked(args, count > 4 ? 4 : count, result);
      return;
    }
    Request asked{storage, args[1].cast<int64_t>(), {shape->data, shape->size}, args[3].cast<DLDataType>(), 0, nullptr};
    if (count > 4) asked.name = &args[4];
    asked.nbytes = Bytes(asked.shape, asked.dtype);
    Check(asked);
    *result = Made(asked, args[0]);
  }

  // The storage that is `value`, where a pool has served it; else nullptr.
  const VmStorage* OfPool(const ffi::AnyView& value) const {
    if (value.type_index() != storage_type) return nullptr;
    auto* storage = static_cast<const VmStorage*>(value.as<ffi::Object>());
    return IsPoolType(storage->buffer.alloc_type) ? storage : nullptr;
  }
};

}  // namespace

void CheckTensors() {
  TVMFFIByteArray key{kStorage, std::strlen(kStorage)};
  int32_t storage_type;
  TVM_FFI_CHECK_SAFE_CALL(TVMFFITypeKeyToIndex(&key, &storage_type));
  Place place{ffi::Function::GetGlobalRequired(kStock), storage_type};
  for (const char* name : {kStock, kNamed}) {
    ffi::Function::SetGlobal(name, ffi::Function::FromPacked(place), true);
  }
}

}  // namespace symalloc
