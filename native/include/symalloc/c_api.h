// The pool's functions in C: what symalloc/pool.h calls, for other languages, too.
//
// Each returns 0, or -1 with an error of tvm-ffi, which TVMFFIErrorMoveFromRaised takes.  Its kind is PoolUsageError
// for arguments that make no sense, OutOfMemoryError, BoundsError for an impossible shape, or HookError where TVM does
// not take the pool.  All are thread-safe.
#ifndef SYMALLOC_C_API_H_
#define SYMALLOC_C_API_H_

#include <stdint.h>
#include <tvm/ffi/c_api.h>

#if defined(__GNUC__)
#define SYMALLOC_API __attribute__((visibility("default")))
#else
#define SYMALLOC_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct SymallocPool SymallocPool;

// Fields are only ever added at the end; `nbytes` says which of them the caller knows.
typedef struct {
  uint64_t nbytes;     // sizeof(SymallocPoolOptions)
  int64_t limit;       // bytes that are backed at most; -1: the memory that the process can have
  int64_t soft_limit;  // bytes above which free pages go back; -1: as soft_ratio says
  double soft_ratio;   // the same, as a ratio to the most bytes in use so far: 1.1, to a thousandth; 0: none go back
  int64_t page;        // bytes; a power of two
  double wait;         // seconds that an allocation waits for memory before it fails
  double decay;        // seconds after which free pages that nobody needed go back; 0: never
  int32_t guard;       // 1: every block has pages of its own, which finds overruns, and is slow
} SymallocPoolOptions;

// Fields are only ever added at the end.
typedef struct {
  uint64_t nbytes;        // sizeof(SymallocPoolStatistics)
  int64_t limit;          // bytes
  int64_t live;           // bytes asked for and not freed
  int64_t used;           // bytes handed out, to callers or to caches of threads
  int64_t peak_used;      // bytes
  int64_t reserved;       // bytes backed
  int64_t peak_reserved;  // bytes
  int64_t allocations;
  int64_t frees;
  int64_t refused;  // allocations that did not fit
} SymallocPoolStatistics;

typedef struct SymallocSession SymallocSession;

// Fields are only ever added at the end.
typedef struct {
  uint64_t nbytes;    // sizeof(SymallocSessionStatistics)
  int64_t limit;      // bytes; -1: none but the pool's
  int64_t live;       // bytes asked for and not freed
  int64_t peak_live;  // bytes
  int64_t allocations;
  int64_t frees;
  int64_t refused;  // allocations that did not fit into the session
} SymallocSessionStatistics;

// The options by default, into `options`, whose `nbytes` is set.
SYMALLOC_API int symalloc_pool_options(SymallocPoolOptions* options);

SYMALLOC_API int symalloc_pool_create(const SymallocPoolOptions* options, SymallocPool** pool);

// The pool itself goes with the last of its machines and blocks.
SYMALLOC_API void symalloc_pool_release(SymallocPool* pool);

// Initializes `machine`, a module of TVM's, for cpu(0) on the pool.  The machine keeps the pool.
SYMALLOC_API int symalloc_pool_serve(SymallocPool* pool, TVMFFIObjectHandle machine);

// The allocator type by which `vm_initialization` finds the pool, for cpu(0) alone.
SYMALLOC_API int symalloc_pool_allocator_type(SymallocPool* pool, int32_t* type);

// Has `machine`, which was initialized with that type, keep the pool.
SYMALLOC_API int symalloc_pool_keep(SymallocPool* pool, TVMFFIObjectHandle machine);

// A tensor of the pool's memory, which returns there with its last reference.  `tag` names it in errors.
SYMALLOC_API int symalloc_pool_empty(SymallocPool* pool, const int64_t* shape, int32_t ndim, DLDataType dtype,
                                     const char* tag, TVMFFIObjectHandle* tensor);

// Gives every free page back; `freed`: the bytes.
SYMALLOC_API int symalloc_pool_trim(SymallocPool* pool, int64_t* freed);

// Fills the fields that `statistics->nbytes` says are there.
SYMALLOC_API int symalloc_pool_statistics(SymallocPool* pool, SymallocPoolStatistics* statistics);

// A budget of `limit` bytes within the pool; -1: none, the session only counts.  It lies within the session that the
// calling thread is in.  `name` stands in errors.
SYMALLOC_API int symalloc_session_open(SymallocPool* pool, const char* name, int64_t limit, SymallocSession** session);

// What was charged to it stays so until it is freed.
SYMALLOC_API void symalloc_session_release(SymallocSession* session);

// What the calling thread allocates from now on, and the machines that it runs, is charged to the session.
SYMALLOC_API int symalloc_session_enter(SymallocSession* session);
SYMALLOC_API int symalloc_session_leave(SymallocSession* session);

SYMALLOC_API int symalloc_session_statistics(SymallocSession* session, SymallocSessionStatistics* statistics);

#ifdef __cplusplus
}
#endif

#endif  // SYMALLOC_C_API_H_
