# libcompress: session/compress.h as a shared and a static library, which show that header's
# functions and nothing else. Not made of builds with sanitizers.
# Before 1.0 a minor version may change what is there, so the name has it as well.
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(LIBRARY_VERSION 0.${PROJECT_VERSION_MINOR})
else()
  set(LIBRARY_VERSION ${PROJECT_VERSION_MAJOR})
endif()
set(LIBRARY_PARTS session passes io exec ir onnx_proto)
add_library(libcompress SHARED $<TARGET_OBJECTS:session>)
if(HDF5_OBJECT)
  add_library(hdf5_streams STATIC scripts/package/hdf5_streams.c)
  list(APPEND LIBRARY_PARTS hdf5_streams)
  add_custom_command(OUTPUT ${HDF5_OBJECT} VERBATIM
    COMMAND ${PROJECT_SOURCE_DIR}/scripts/package/hdf5-object $<TARGET_FILE:io> ${HDF5_ARCHIVE} ${HDF5_OBJECT}
    DEPENDS io ${HDF5_ARCHIVE} scripts/package/hdf5-object)
  add_custom_target(hdf5_inside DEPENDS ${HDF5_OBJECT})
  add_dependencies(libcompress hdf5_inside)
  target_link_libraries(libcompress PRIVATE ${HDF5_OBJECT} $<TARGET_OBJECTS:hdf5_streams>)
endif()
set_target_properties(libcompress PROPERTIES OUTPUT_NAME compress EXPORT_NAME compress
  VERSION ${PROJECT_VERSION} SOVERSION ${LIBRARY_VERSION})
target_link_libraries(libcompress PRIVATE passes io exec ir)
target_link_options(libcompress PRIVATE
  "LINKER:--version-script=${PROJECT_SOURCE_DIR}/scripts/package/compress.map" LINKER:-z,defs
  LINKER:-z,nodelete) # threads and what runs at exit outlive a dlclose
set_target_properties(libcompress PROPERTIES LINK_DEPENDS
  ${PROJECT_SOURCE_DIR}/scripts/package/compress.map)
target_include_directories(libcompress INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# One object of all, with all names but the header's made local: they meet those of no program.
set(LIBRARY_FILES)
set(LIBRARY_OBJECTS)
foreach(part ${LIBRARY_PARTS})
  list(APPEND LIBRARY_OBJECTS $<TARGET_OBJECTS:${part}>)
  list(APPEND LIBRARY_FILES $<TARGET_FILE:${part}>)
endforeach()
add_custom_command(OUTPUT libcompress.a VERBATIM DEPENDS ${LIBRARY_PARTS}
  COMMAND ld -r --whole-archive ${LIBRARY_FILES} --no-whole-archive ${HDF5_OBJECT} -o libcompress.o
  COMMAND ${CMAKE_OBJCOPY} --localize-hidden libcompress.o
  COMMAND ${CMAKE_OBJCOPY} --wildcard "--keep-global-symbol=compress_*" libcompress.o
  COMMAND ${CMAKE_COMMAND} -E rm -f libcompress.a
  COMMAND ${CMAKE_AR} qcD libcompress.a libcompress.o
  COMMAND ${CMAKE_RANLIB} -D libcompress.a
  COMMAND ${CMAKE_COMMAND} -E rm libcompress.o)
add_custom_target(libcompress_static ALL DEPENDS libcompress.a)
if(HDF5_OBJECT)
  add_dependencies(libcompress_static hdf5_inside)
endif()

# How other projects find it. What the static library needs stands there as flags: a name of
# another .pc file would be looked for by those who link with the shared one as well.
set(PRIVATE_FLAGS)
set(HDF5_INSIDE_LDFLAGS -lsz)
if(HDF5_OBJECT)
  set(HDF5_MODULE HDF5_INSIDE)
else()
  set(HDF5_MODULE HDF5)
endif()
foreach(module OPENBLAS LAPACKE YAML JANSSON ${HDF5_MODULE} PNG JPEG UTF8PROC PCRE2 PROTOBUF_C XXHASH SECCOMP)
  list(APPEND PRIVATE_FLAGS ${${module}_LDFLAGS})
endforeach()
if(ONEDNN_FOUND)
  list(APPEND PRIVATE_FLAGS -ldnnl)
endif()
list(APPEND PRIVATE_FLAGS -lz -lpthread -lm)
list(REMOVE_DUPLICATES PRIVATE_FLAGS)
list(JOIN PRIVATE_FLAGS " " LIBS_PRIVATE)
include(CMakePackageConfigHelpers)
set(CONFIG ${CMAKE_INSTALL_LIBDIR}/cmake/compress)
string(REGEX REPLACE "[^/]+" ".." PREFIX_FROM_PC "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
configure_file(scripts/package/compress.pc.in ${MADE}/compress.pc @ONLY)
configure_package_config_file(scripts/package/compressConfig.cmake.in
  ${MADE}/compressConfig.cmake INSTALL_DESTINATION ${CONFIG})
write_basic_package_version_file(${MADE}/compressConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)

install(TARGETS libcompress EXPORT compressTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library
  NAMELINK_COMPONENT development)
install(EXPORT compressTargets NAMESPACE compress:: DESTINATION ${CONFIG} COMPONENT development)
install(FILES session/compress.h session/compress_plugin.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/libcompress.a DESTINATION ${CMAKE_INSTALL_LIBDIR}
  COMPONENT development)
install(FILES ${MADE}/compress.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  COMPONENT development)
install(FILES ${MADE}/compressConfig.cmake ${MADE}/compressConfigVersion.cmake
  DESTINATION ${CONFIG} COMPONENT development)
