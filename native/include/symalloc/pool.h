// symalloc's pool as the allocator of TVM's virtual machine, for programs without Python.
//
//   symalloc::Pool pool;
//   auto library = tvm::ffi::Module::LoadFromFile("./model.so");
//   auto machine = library->GetFunction("vm_load_executable").value()().cast<tvm::ffi::Module>();
//   pool.Serve(machine);
//
// C++17, and libtvm_runtime in the process.  What fails throws tvm::ffi::Error; its kind is one of those in c_api.h.  A
// request that does not fit leaves the machine's function as such an error, too: OutOfMemoryError, whose text says who
// holds the memory.
#ifndef SYMALLOC_POOL_H_
#define SYMALLOC_POOL_H_

#include <symalloc/c_api.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/object.h>

#include <cstdint>
#include <memory>
#include <string>

namespace symalloc {

// What the fields mean is in c_api.h.
struct PoolOptions : SymallocPoolOptions {
  PoolOptions() : SymallocPoolOptions() {
    nbytes = sizeof(SymallocPoolOptions);
    TVM_FFI_CHECK_SAFE_CALL(symalloc_pool_options(this));
  }
};

using PoolStatistics = SymallocPoolStatistics;
using SessionStatistics = SymallocSessionStatistics;

// Thread-safe.  It lives as long as this object, the machines that it serves, and its tensors.
class Pool {
 public:
  explicit Pool(const PoolOptions& options = PoolOptions()) : pool_(Created(options), symalloc_pool_release) {}

  // Initializes `machine`, what `vm_load_executable` has just returned, for cpu(0) on this pool.  One machine is for
  // one thread at a time; a pool serves any number of machines.  PoolUsageError where it is initialized already.
  void Serve(const tvm::ffi::Module& machine) {
    TVM_FFI_CHECK_SAFE_CALL(symalloc_pool_serve(pool_.get(), Handle(machine)));
  }

  // For a machine on several devices: initialize it with this type for cpu(0), then have it keep the pool.
  int AllocatorType() {
    int32_t type;
    TVM_FFI_CHECK_SAFE_CALL(symalloc_pool_allocator_type(pool_.get(), &type));
    return type;
  }
  void Keep(const tvm::ffi::Module& machine) {
    TVM_FFI_CHECK_SAFE_CALL(symalloc_pool_keep(pool_.get(), Handle(machine)));
  }

  // A tensor of the pool's memory, which returns there with its last reference.  `tag` names it in errors.
  tvm::ffi::Tensor Empty(tvm::ffi::ShapeView shape, DLDataType dtype, const std::string& tag = "") {
    namespace details = tvm::ffi::details;
    TVMFFIObjectHandle made;
    TVM_FFI_CHECK_SAFE_CALL(symalloc_pool_empty(pool_.get(), shape.data(), static_cast<int32_t>(shape.size()), dtype,
                                                tag.c_str(), &made));
    return tvm::ffi::Tensor(details::ObjectUnsafe::ObjectPtrFromOwned<tvm::ffi::TensorObj>(
        static_cast<TVMFFIObject*>(made)));
  }

  // Gives every free page back; returns the bytes.
  int64_t Trim() {
    int64_t freed;
    TVM_FFI_CHECK_SAFE_CALL(symalloc_pool_trim(pool_.get(), &freed));
    return freed;
  }

  PoolStatistics Statistics() {
    PoolStatistics statistics{};
    statistics.nbytes = sizeof(statistics);
    TVM_FFI_CHECK_SAFE_CALL(symalloc_pool_statistics(pool_.get(), &statistics));
    return statistics;
  }

 private:
  friend class Session;

  static SymallocPool* Created(const PoolOptions& options) {
    SymallocPool* made;
    TVM_FFI_CHECK_SAFE_CALL(symalloc_pool_create(&options, &made));
    return made;
  }

  static TVMFFIObjectHandle Handle(const tvm::ffi::Module& machine) {
    if (!machine.defined()) return nullptr;  // it was moved from
    return tvm::ffi::details::ObjectUnsafe::TVMFFIObjectPtrFromObjectRef(machine);
  }

  std::shared_ptr<SymallocPool> pool_;
};

// A budget within a pool.  What a thread allocates in a Scope, and the machines that it runs, is charged to the session
// until it is freed, by whomever; beyond the budget it is an OutOfMemoryError, although the pool has room.
class Session {
 public:
  // `limit`: bytes; -1: the session only counts.
  Session(const Pool& pool, const std::string& name, int64_t limit = -1)
      : session_(Opened(pool, name, limit), symalloc_session_release) {}

  // The thread is in the session for as long as this lives; several threads may be.
  class Scope {
   public:
    explicit Scope(const Session& session) : session_(session.session_) {
      TVM_FFI_CHECK_SAFE_CALL(symalloc_session_enter(session_.get()));
    }
    ~Scope() { symalloc_session_leave(session_.get()); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    std::shared_ptr<SymallocSession> session_;
  };

  SessionStatistics Statistics() {
    SessionStatistics statistics{};
    statistics.nbytes = sizeof(statistics);
    TVM_FFI_CHECK_SAFE_CALL(symalloc_session_statistics(session_.get(), &statistics));
    return statistics;
  }

 private:
  static SymallocSession* Opened(const Pool& pool, const std::string& name, int64_t limit) {
    SymallocSession* made;
    TVM_FFI_CHECK_SAFE_CALL(symalloc_session_open(pool.pool_.get(), name.c_str(), limit, &made));
    return made;
  }

  std::shared_ptr<SymallocSession> session_;
};

}  // namespace symalloc

#endif  // SYMALLOC_POOL_H_
