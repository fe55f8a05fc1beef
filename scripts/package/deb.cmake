# Debian packages by CPack, one for each component: the program, the library, and what
# programs are built with against it. `scripts/package/deb` makes them as they are meant: with
# COMPRESS_PROGRAM=compress-transformers and the prefix /usr.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ${COMPRESS_PROGRAM})
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The compress developers <compress@packages.example.org>"
  CACHE STRING "who maintains the packages, as \"Name <mail>\"")
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(DEBIAN ${CMAKE_CURRENT_BINARY_DIR}/debian)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program library development)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

# The program. Debian's ncompress has /usr/bin/compress: both install side by side.
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME ${COMPRESS_PROGRAM})
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "makes trained transformers smaller and faster
A recipe in YAML is an ordered list of passes: sharing of weights,
distillation, pruning, factoring, linear attention, early exits, removal of
layers, weights of 8 and 4 bits. Models of Hugging Face, ONNX and GGUF come
in and go out.

The program is called ${COMPRESS_PROGRAM}.")

# The library, by the name of its version: minor versions of 0.x install side by side.
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libcompress${LIBRARY_VERSION})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
# CPack's own shlibs bring scripts that call ldconfig, where Debian has a trigger.
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${DEBIAN}/shlibs ${DEBIAN}/triggers)
file(WRITE ${DEBIAN}/shlibs "libcompress ${LIBRARY_VERSION} libcompress${LIBRARY_VERSION} (>= ${PROJECT_VERSION})\n")
file(WRITE ${DEBIAN}/triggers "activate-noawait ldconfig\n")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "compression of transformers, as a library
Loads models, runs recipes and passes on them, inspects, saves and runs them
and generates text, from any program that can call C.

This package holds the shared library.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libcompress-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
  "libcompress${LIBRARY_VERSION} (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS pkg-config)
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "compression of transformers, to build with
Header, static library, pkg-config and CMake files of libcompress. The static
library is linked with the development packages that compress is built with.")

set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/scripts/package/deb_files.cmake)
set(CPACK_COMPRESS_LICENSE ${PROJECT_SOURCE_DIR}/scripts/package/copyright)
set(CPACK_COMPRESS_PACKAGES "program=${COMPRESS_PROGRAM};library=libcompress${LIBRARY_VERSION};development=libcompress-dev")
set(CPACK_COMPRESS_CHANGELOG "${COMPRESS_PROGRAM} (${PROJECT_VERSION}) unstable; urgency=medium

  * What changed: /usr/share/doc/${COMPRESS_PROGRAM}/docs/changelog.md.

 -- ${CPACK_PACKAGE_CONTACT}  ")
include(CPack)
