// The pool as an object of tvm-ffi.
#pragma once

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/object.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/translated.h"
#include "pool/handles.h"
#include "pool/pool.h"

namespace symalloc {

class PoolObj : public tvm::ffi::Object {
 public:
  explicit PoolObj(const Options& options) : pool(options, handles.mutex()), owners{options.wait, true} {}
  ~PoolObj();

  HandleTable handles;  // the pool holds its mutex while the process forks
  Pool pool;
  const Patience owners;      // of the pool's owner, who may end the wait; machines go on
  std::atomic<int> users{0};  // see pool_use.h
  int vm_type = -1;           // of `VmType`; -1: none.  Changed by it alone

  // As Pool::Alloc, or AllocWaiting; OutOfMemory names the tags that hold most.
  void* Alloc(int64_t nbytes, int64_t align, std::string_view tag, const Patience* patience = nullptr);

  // The same, and the block keeps its tag.
  void* Take(int64_t nbytes, int64_t align, std::string_view tag, const Patience* patience = nullptr);

  // Every block that is known by name or by handle.
  std::vector<Tagged> Holders();

  // "\n  held: `weights` 4096 bytes in 2 blocks, …" for the tags that hold most; "" where nothing is tagged.
  std::string MostHeld();

  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("symalloc.Pool", PoolObj, tvm::ffi::Object);
};

class PoolRef : public tvm::ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(PoolRef, tvm::ffi::ObjectRef, PoolObj);
};

// A pool whose waits end by Python's signals, where there is a Python.  Throws PoolUsage for options that make no sense.
PoolRef MakePool(Options options);

// Bytes; -1: the memory that the process can have, and the pool addresses for.
void SetPoolLimit(PoolRef pool, int64_t limit);

// Says which thread, as pthread_self() does, handles Python's signals, beside the first one of the process.
void SetMainThread(int64_t thread);

// Has Python's signals, such as Ctrl-C, throw the exception of their handler, in the main thread.
void CheckInterrupts();

// For a function that may take long and is called without Python's lock.  Where Python is ending, other threads than the
// main one stay here, as they do in Python from 3.14 on: tvm-ffi would take the lock in a destructor, which Python
// answers with an exception, and the process would end by SIGABRT.
class Lasting {
 public:
  Lasting() = default;
  Lasting(const Lasting&) = delete;
  Lasting& operator=(const Lasting&) = delete;
  ~Lasting();
};

// What a callback has raised that is no error, such as Ctrl-C; symalloc/pool/core/interrupts.py carries it.
inline bool IsInterrupt(const tvm::ffi::Error& error) { return error.kind() == "CallbackInterruptError"; }

// Has Python raise it in its main thread, where it can, or print it.
void DeliverInterrupt(const tvm::ffi::Error& error);

// Frees a block in a destructor, which cannot throw: what is wrong is printed, and damage kept for the next allocation.
inline void FreeQuietly(Pool* pool, void* block, int64_t nbytes) {
  try {
    pool->Free(block, nbytes);
  } catch (const Overrun& error) {
    std::fprintf(stderr, "symalloc: %s\n", error.what());
    pool->guard()->Keep(error.what());
  } catch (const tvm::ffi::Error& error) {
    DeliverInterrupt(error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "symalloc: %s\n", error.what());
  }
}

// A tensor's memory; the pool lives as long as its last tensor.
struct PooledData {
  PoolRef pool;
  std::string tag;
  const Patience* patience = nullptr;  // nullptr: as the pool is told

  void AllocData(DLTensor* tensor) {
    int64_t nbytes = tvm::ffi::GetDataSize(*tensor);
    Translated([&] { tensor->data = pool->Take(nbytes, 64, tag, patience); });
  }
  void FreeData(DLTensor* tensor) { FreeQuietly(&pool->pool, tensor->data, tvm::ffi::GetDataSize(*tensor)); }
};

}  // namespace symalloc
