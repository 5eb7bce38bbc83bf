# find_package(symalloc CONFIG) gives the target symalloc::pool: libsymalloc.so, and <symalloc/pool.h>.  Where TVM's
# wheel lies beside it, symalloc::tvm_runtime is that wheel's libtvm_runtime.so.
include(CMakeFindDependencyMacro)

get_filename_component(_symalloc_native "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
get_filename_component(_symalloc_site "${_symalloc_native}/../.." ABSOLUTE)

if(NOT TARGET tvm_ffi::shared)
  # the package of tvm-ffi asks the Python that it is installed in
  if(NOT Python_EXECUTABLE AND EXISTS "${_symalloc_site}/../../../bin/python3")
    set(Python_EXECUTABLE "${_symalloc_site}/../../../bin/python3")
  endif()
  find_dependency(tvm_ffi CONFIG HINTS "${_symalloc_site}/tvm_ffi/share/cmake/tvm_ffi")
endif()
get_target_property(_symalloc_tvm_ffi tvm_ffi::shared IMPORTED_LOCATION)
if(NOT EXISTS "${_symalloc_tvm_ffi}")
  set(symalloc_FOUND FALSE)
  set(symalloc_NOT_FOUND_MESSAGE "${Python_EXECUTABLE} has no tvm_ffi: set Python_EXECUTABLE to the Python that has it")
  return()
endif()

if(NOT TARGET symalloc::pool)
  add_library(symalloc::pool SHARED IMPORTED)
  set_target_properties(
    symalloc::pool
    PROPERTIES IMPORTED_LOCATION "${_symalloc_native}/libsymalloc.so"
               IMPORTED_SONAME libsymalloc.so
               INTERFACE_INCLUDE_DIRECTORIES "${_symalloc_native}/include"
               INTERFACE_COMPILE_FEATURES cxx_std_17
               INTERFACE_LINK_LIBRARIES "tvm_ffi::header;tvm_ffi::shared"
  )
endif()

set(_symalloc_tvm_runtime "${_symalloc_site}/tvm/lib/libtvm_runtime.so")
if(EXISTS "${_symalloc_tvm_runtime}" AND NOT TARGET symalloc::tvm_runtime)
  add_library(symalloc::tvm_runtime SHARED IMPORTED)
  # no symbol of it is called: its functions are found by their names
  set_target_properties(
    symalloc::tvm_runtime PROPERTIES IMPORTED_LOCATION "${_symalloc_tvm_runtime}" IMPORTED_SONAME libtvm_runtime.so
                                     INTERFACE_LINK_OPTIONS "LINKER:--no-as-needed"
                                     INTERFACE_LINK_LIBRARIES tvm_ffi::shared
  )
endif()
