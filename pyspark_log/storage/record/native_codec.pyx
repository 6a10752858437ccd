# cython: language_level=3
"""Finds C functions that codecs' packages contain.

For the small batches of a log a package's Python function takes longer than the decompression.
"""

from importlib.util import find_spec
from os import fsencode

cdef extern from "<dlfcn.h>" nogil:
    void* dlopen(const char* path, int flags)
    void* dlsym(void* library, const char* name)
    int RTLD_NOW


cdef void* find_function(str module, const char* name) except? NULL:
    cdef void* library = NULL
    spec = find_spec(module)
    if spec is not None and spec.origin is not None:
        library = dlopen(fsencode(spec.origin), RTLD_NOW)
    return dlsym(library, name) if library != NULL else NULL
