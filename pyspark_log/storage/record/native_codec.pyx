# cython: language_level=3
"""Finds C functions of codecs, in libraries of the system and in extension modules of packages.

For the small batches of a log a package's Python function takes longer than the decompression.
"""

from importlib.util import find_spec
from os import fsencode

cdef extern from "<dlfcn.h>" nogil:
    void* dlopen(const char* path, int flags)
    void* dlsym(void* library, const char* name)
    int RTLD_NOW


cdef void* system_library(str file) except? NULL:
    return dlopen(fsencode(file), RTLD_NOW)


cdef void* module_library(str module) except? NULL:
    spec = find_spec(module)
    return NULL if spec is None or spec.origin is None else dlopen(fsencode(spec.origin), RTLD_NOW)


cdef void* find_function(void* library, const char* name) noexcept:
    return NULL if library == NULL else dlsym(library, name)
