// TVM checks that a tensor on a storage ends within it, in unsigned arithmetic: a negative offset, and a
// byte count beyond 64 bits, pass.  Its function that places tensors is replaced by one that checks exactly.
#include "vm_tensor.h"

#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <string>

#include "vm_hook.h"
#include "vm_layout.h"

namespace symalloc {

namespace ffi = tvm::ffi;

namespace {

constexpr const char* kStock = "vm.builtin.alloc_tensor";
// the same, with the tensor's name as one more argument
constexpr const char* kNamed = "symalloc.pool.alloc_tensor";

std::string Text(const ffi::Shape& shape, DLDataType dtype) {
  std::string text(ffi::DLDataTypeToString(dtype));
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "[" : ", ") + std::to_string(shape[i]);
  return text + (shape.size() == 0 ? "[]" : "]");
}

// Bytes of a tensor; -1 where an extent is negative or the count is beyond 64 bits.
int64_t Bytes(const ffi::Shape& shape, DLDataType dtype) {
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
  ffi::Shape shape;
  DLDataType dtype;
  std::string name;  // empty: not known
  int64_t nbytes;
};

[[noreturn]] void Refuse(const Request& asked, const std::string& why) {
  std::string tensor = asked.name.empty() ? "a tensor" : "tensor `" + asked.name + "`";
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

// The storage that is `value`, where a pool has served it; else nullptr.
const VmStorage* OfPool(const ffi::AnyView& value) {
  auto object = value.as<ffi::ObjectRef>();
  if (!object.has_value() || object->GetTypeKey() != "vm.Storage") return nullptr;
  auto* storage = static_cast<const VmStorage*>(object->get());
  return storage->buffer.alloc_type >= kFirstType ? storage : nullptr;
}

// A tensor with pages of its own, so that its edges are watched within the storage too.
ffi::Tensor Guarded(const PoolRef& pool, const Request& asked) {
  std::string tag = asked.name.empty() ? Text(asked.shape, asked.dtype) : asked.name;
  return ffi::Tensor::FromNDAlloc(PooledData{pool, tag}, asked.shape, asked.dtype, asked.storage->buffer.device);
}

struct Place {
  ffi::Function stock;

  // (storage, offset, shape, dtype[, name])
  void operator()(const ffi::AnyView* args, int32_t count, ffi::Any* result) const {
    const VmStorage* storage = count >= 4 ? OfPool(args[0]) : nullptr;
    if (storage != nullptr) {
      Request asked{storage, args[1].cast<int64_t>(), args[2].cast<ffi::Shape>(), args[3].cast<DLDataType>(), "", 0};
      if (count > 4) asked.name = std::string(args[4].cast<ffi::String>());
      asked.nbytes = Bytes(asked.shape, asked.dtype);
      Check(asked);
      const PoolRef& pool = PoolOf(storage->allocator);
      if (pool->pool.guard() != nullptr) {
        *result = Guarded(pool, asked);
        return;
      }
    }
    stock.CallPacked(args, count > 4 ? 4 : count, result);
  }
};

}  // namespace

void CheckTensors() {
  Place place{ffi::Function::GetGlobalRequired(kStock)};
  for (const char* name : {kStock, kNamed}) {
    ffi::Function::SetGlobal(name, ffi::Function::FromPacked(place), true);
  }
}

}  // namespace symalloc
