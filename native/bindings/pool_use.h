// Those who can take memory from a pool.
#pragma once

#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/optional.h>
#include <tvm/ffi/string.h>

#include <exception>
#include <utility>

#include "bindings/pool_object.h"

namespace symalloc {

// Counts its holder among the users of a pool; with the last one the pool is closed.  A module without functions, so
// that a virtual machine, which is a module, can hold it as one of its imports for as long as it lives.
class PoolUse : public tvm::ffi::ModuleObj {
 public:
  explicit PoolUse(PoolRef pool) : pool_(std::move(pool)) { pool_->users.fetch_add(1); }

  ~PoolUse() {
    if (pool_->users.fetch_sub(1) != 1) return;
    try {
      pool_->pool.Close();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "symalloc: %s\n", error.what());
    }
  }

  const char* kind() const final { return "symalloc.pool"; }
  tvm::ffi::Optional<tvm::ffi::Function> GetFunction(const tvm::ffi::String&) final { return std::nullopt; }

  static tvm::ffi::Module Of(PoolRef pool) {
    return tvm::ffi::Module(tvm::ffi::make_object<PoolUse>(std::move(pool)));
  }

 private:
  PoolRef pool_;
};

}  // namespace symalloc
