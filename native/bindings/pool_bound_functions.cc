// The functions of a pool that Python calls most, with the pool bound to them: an argument less is quicker, and so
// are arguments that are there only where they say something.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <array>
#include <string>
#include <utility>

#include "bindings/tensor_placement.h"
#include "bindings/pool_object.h"

namespace symalloc {

namespace ffi = tvm::ffi;

namespace {

constexpr int64_t kAlignment = 64;
constexpr int kMostAxes = 64;

void CheckCount(int32_t count, bool right, const char* wanted) {
  if (right) return;
  throw ffi::Error("TypeError", "expected " + std::string(wanted) + ", not " + std::to_string(count) + " arguments", "");
}

// A handle; of (bytes) or (bytes, alignment, escapes, tag).
int64_t Alloc(PoolObj* pool, const ffi::AnyView* arguments, int32_t count) {
  CheckCount(count, count == 1 || count == 4, "bytes, or bytes, alignment, escapes and tag");
  int64_t nbytes = arguments[0].cast<int64_t>();
  int64_t align = count == 1 ? kAlignment : arguments[1].cast<int64_t>();
  bool escapes = count == 1 ? false : arguments[2].cast<bool>();
  std::string tag = count == 1 ? "" : std::string(arguments[3].cast<ffi::String>());
  return Translated([&] {
    void* block = pool->Alloc(nbytes, align, escapes, tag);
    if (pool->pool.guard() != nullptr) pool->pool.guard()->Name(block, tag);
    return pool->handles.Add(block, nbytes, std::move(tag));
  });
}

void Free(PoolObj* pool, int64_t handle) {
  Translated([&] {
    Held gone;
    if (pool->handles.Release(handle, &gone)) pool->pool.Free(gone.block, gone.nbytes);
  });
}

// Memory of a tensor without a tag.
struct Untagged {
  PoolRef pool;

  void AllocData(DLTensor* tensor) {
    int64_t nbytes = static_cast<int64_t>(ffi::GetDataSize(*tensor));
    Translated([&] { tensor->data = pool->Alloc(nbytes, kAlignment, false, ""); });
  }
  void FreeData(DLTensor* tensor) {
    FreeQuietly(&pool->pool, tensor->data, static_cast<int64_t>(ffi::GetDataSize(*tensor)));
  }
};

// A tensor; of (dtype, extent, extent, …), or of those and a tag in the end.
ffi::Tensor Empty(const PoolRef& pool, const ffi::AnyView* arguments, int32_t count) {
  auto tag = count > 1 ? arguments[count - 1].as<ffi::String>() : std::nullopt;
  int32_t axes = count - (tag.has_value() ? 2 : 1);
  CheckCount(count, axes >= 0 && axes <= kMostAxes, "a dtype, at most 64 extents, perhaps a tag");
  std::array<int64_t, kMostAxes> extents;
  for (int32_t i = 0; i < axes; ++i) extents[i] = arguments[i + 1].cast<int64_t>();
  ffi::ShapeView shape(extents.data(), static_cast<size_t>(axes));
  auto dtype = arguments[0].cast<DLDataType>();
  if (Bytes(shape, dtype) < 0) {
    throw ffi::Error("BoundsError", "a tensor, " + Text(shape, dtype) +
                                        ", has a negative extent, or more bytes than 64 bits can count", "");
  }
  DLDevice cpu{kDLCPU, 0};
  if (!tag.has_value()) return ffi::Tensor::FromNDAlloc(Untagged{pool}, shape, dtype, cpu);
  return ffi::Tensor::FromNDAlloc(PooledData{pool, std::string(*tag)}, shape, dtype, cpu);
}

ffi::Function BindAlloc(PoolRef pool) {
  return ffi::Function::FromPacked([pool](const ffi::AnyView* arguments, int32_t count, ffi::Any* result) {
    *result = Alloc(const_cast<PoolObj*>(pool.get()), arguments, count);
  });
}

ffi::Function BindFree(PoolRef pool) {
  return ffi::Function::FromTyped([pool](int64_t handle) { Free(const_cast<PoolObj*>(pool.get()), handle); });
}

ffi::Function BindEmpty(PoolRef pool) {
  return ffi::Function::FromPacked([pool](const ffi::AnyView* arguments, int32_t count, ffi::Any* result) {
    *result = Empty(pool, arguments, count);
  });
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::GlobalDef()
      .def("symalloc.pool.bind_alloc", BindAlloc)
      .def("symalloc.pool.bind_free", BindFree)
      .def("symalloc.pool.bind_empty", BindEmpty);
}

}  // namespace symalloc
