// Sessions of pools for tvm-ffi; symalloc/native/native_functions.pyi has the types.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/object.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <memory>
#include <string>
#include <utility>

#include "bindings/pool_object.h"

namespace symalloc {

namespace ffi = tvm::ffi;

namespace {

class SessionObj : public ffi::Object {
 public:
  SessionObj(PoolRef pool, std::shared_ptr<Session> session) : pool(std::move(pool)), session(std::move(session)) {}

  PoolRef pool;
  std::shared_ptr<Session> session;

  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("symalloc.Session", SessionObj, ffi::Object);
};

class SessionRef : public ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(SessionRef, ffi::ObjectRef, SessionObj);
};

SessionRef Open(PoolRef pool, ffi::String name, int64_t limit, bool paged) {
  auto session = pool->pool.OpenSession(std::string(name), limit, paged);
  return SessionRef(ffi::make_object<SessionObj>(std::move(pool), std::move(session)));
}

void Enter(SessionRef it) { it->pool->pool.EnterSession(it->session); }

void Leave(SessionRef it) {
  Translated([&] { it->pool->pool.LeaveSession(it->session.get()); });
}

void SetLimit(SessionRef it, int64_t limit) { it->pool->pool.SetSessionLimit(it->session.get(), limit); }

// limit, live, peak live, allocs, frees, refused
ffi::Array<int64_t> Read(SessionRef it) {
  SessionStatistics s = it->pool->pool.ReadSession(it->session.get());
  return {s.limit, s.live, s.peak_live, s.allocs, s.frees, s.refused};
}

// tag, blocks, bytes, …
ffi::Array<ffi::Any> Holdings(SessionRef it) {
  ffi::Array<ffi::Any> answer;
  for (const auto& [tag, held] : it->pool->pool.HeldBy(it->session.get())) {
    answer.push_back(ffi::String(tag));
    answer.push_back(held.blocks);
    answer.push_back(held.nbytes);
  }
  return answer;
}

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  ffi::reflection::ObjectDef<SessionObj>();
  ffi::reflection::GlobalDef()
      .def("symalloc.pool.open_session", Open)
      .def("symalloc.pool.enter_session", Enter)
      .def("symalloc.pool.leave_session", Leave)
      .def("symalloc.pool.set_session_limit", SetLimit)
      .def("symalloc.pool.read_session", Read)
      .def("symalloc.pool.session_holdings", Holdings);
}

}  // namespace symalloc
