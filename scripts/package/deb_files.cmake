# Run by CPack when all is in its folder and before packages are made of it: what Debian's
# policy asks of every package beside its files.
string(TIMESTAMP DATE "%a, %d %b %Y %H:%M:%S +0000" UTC) # SOURCE_DATE_EPOCH, where it is set
foreach(pair ${CPACK_COMPRESS_PACKAGES})
  string(REGEX MATCH "^([a-z]+)=(.*)$" pair ${pair})
  set(root ${CPACK_TEMPORARY_DIRECTORY}/${CMAKE_MATCH_1}${CPACK_PACKAGING_INSTALL_PREFIX})
  set(doc ${root}/share/doc/${CMAKE_MATCH_2})
  if(NOT IS_DIRECTORY ${root})
    continue()
  endif()
  file(MAKE_DIRECTORY ${doc})
  file(WRITE ${doc}/changelog "${CPACK_COMPRESS_CHANGELOG}${DATE}\n")
  file(READ ${CPACK_COMPRESS_LICENSE} text)
  file(WRITE ${doc}/copyright "${text}")
  file(REMOVE ${doc}/LICENSE)
  file(GLOB pages ${root}/share/man/man1/*.1)
  execute_process(COMMAND gzip -9nf ${doc}/changelog ${pages} COMMAND_ERROR_IS_FATAL ANY)
  file(GLOB_RECURSE scripts ${root}/*.py)
  foreach(file ${doc}/copyright ${doc}/changelog.gz ${scripts})
    file(CHMOD ${file} PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  endforeach()
endforeach()

# What the library needs, for its package: CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS.
set(root ${CPACK_TEMPORARY_DIRECTORY}/library)
if(IS_DIRECTORY ${root})
  file(GLOB_RECURSE objects ${root}/*.so.${CPACK_PACKAGE_VERSION})
  file(WRITE ${CPACK_TEMPORARY_DIRECTORY}/debian/control "")
  execute_process(COMMAND dpkg-shlibdeps -O ${objects} WORKING_DIRECTORY ${CPACK_TEMPORARY_DIRECTORY}
    OUTPUT_VARIABLE needs OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX REPLACE "^shlibs:Depends=" "" CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS "${needs}")
endif()
