// The pool as an object of tvm-ffi.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/ffi/object.h>

#include <new>

#include "handles.h"
#include "pool.h"

namespace symalloc {

class PoolObj : public tvm::ffi::Object {
 public:
  explicit PoolObj(const Options& options) : pool(options, handles.mutex()) {}

  HandleTable handles;  // the pool holds its mutex while the process forks
  Pool pool;

  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("symalloc.Pool", PoolObj, tvm::ffi::Object);
};

class PoolRef : public tvm::ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(PoolRef, tvm::ffi::ObjectRef, PoolObj);
};

// Runs `body`; what the pool refuses becomes an error that Python knows by its kind.
template <typename Body>
auto Translated(Body body) -> decltype(body()) {
  try {
    return body();
  } catch (const OutOfMemory& error) {
    throw tvm::ffi::Error("OutOfMemoryError", error.what(), "");
  } catch (const BadFree& error) {
    throw tvm::ffi::Error("BadFreeError", error.what(), "");
  } catch (const std::bad_alloc&) {
    throw tvm::ffi::Error("MemoryError", "no memory is left for the pool's own books", "");
  }
}

}  // namespace symalloc
