// Turning errors into those that Python knows.
#pragma once

#include <tvm/ffi/error.h>

#include <new>

#include "pool/options.h"

namespace symalloc {

// Runs `body`; what a pool refuses becomes an error of its kind, and a lack of memory for `what` a MemoryError.
template <typename Body>
auto Translated(Body body, const char* what = "the pool's own books") -> decltype(body()) {
  try {
    return body();
  } catch (const PoolError& error) {
    throw tvm::ffi::Error(error.kind, error.what(), "");
  } catch (const std::bad_alloc&) {
    throw tvm::ffi::Error("MemoryError", std::string("no memory is left for ") + what, "");
  }
}

}  // namespace symalloc
