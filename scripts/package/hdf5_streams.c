/* What HDF5's archive prints to where it stands in a shared library: see hdf5-object. Set
 * when the library is loaded, as the C library's own are not constants. */
#include <stdio.h>

extern FILE *hdf5_stdout, *hdf5_stderr;
FILE *hdf5_stdout, *hdf5_stderr;

__attribute__((constructor)) static void set_streams(void) {
    hdf5_stdout = stdout;
    hdf5_stderr = stderr;
}
