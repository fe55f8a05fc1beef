# What `cmake --install` brings: the program, what is made of its tables (manual page,
# completions, schema of recipes), recipes with their models and data, and the manual.

# Debian's ncompress owns /usr/bin/compress: a package that goes beside it takes another name.
set(COMPRESS_PROGRAM compress CACHE STRING "name of the installed program and of its folders")
set(DOCS ${CMAKE_INSTALL_DATADIR}/doc/${COMPRESS_PROGRAM})
set(SHARE ${CMAKE_INSTALL_DATADIR}/${COMPRESS_PROGRAM})

# made(FILE ARGUMENT...): a file that the program prints.
set(MADE ${CMAKE_CURRENT_BINARY_DIR}/made)
set(MADE_FILES)
file(MAKE_DIRECTORY ${MADE})
function(made file)
  add_custom_command(OUTPUT ${MADE}/${file} DEPENDS compress VERBATIM
    COMMAND sh -c "\"$0\" \"$@\" >${file}" $<TARGET_FILE:compress> ${ARGN}
    WORKING_DIRECTORY ${MADE})
  set(MADE_FILES ${MADE_FILES} ${MADE}/${file} PARENT_SCOPE)
endfunction()
made(compress.1 help man)
made(recipe.schema.json passes --schema)
made(completion.bash completion bash ${COMPRESS_PROGRAM})
made(completion.zsh completion zsh ${COMPRESS_PROGRAM})
made(completion.fish completion fish ${COMPRESS_PROGRAM})
if(NOT COMPRESS_PROGRAM STREQUAL "compress")
  # Lines of the manual that begin with the program's name get the other one.
  string(TOUPPER ${COMPRESS_PROGRAM} TITLE)
  add_custom_command(OUTPUT ${MADE}/${COMPRESS_PROGRAM}.1 DEPENDS ${MADE}/compress.1 VERBATIM
    COMMAND sh -c "sed -E -e \"$0\" -e \"$1\" compress.1 >${COMPRESS_PROGRAM}.1"
      "s/^(\\.B |\\.SS \")?compress\\b/\\1${COMPRESS_PROGRAM}/"
      "s/^(\\.TH )COMPRESS/\\1${TITLE}/"
    WORKING_DIRECTORY ${MADE})
  list(APPEND MADE_FILES ${MADE}/${COMPRESS_PROGRAM}.1)
endif()
add_custom_target(made ALL DEPENDS ${MADE_FILES})

set_target_properties(compress PROPERTIES OUTPUT_NAME ${COMPRESS_PROGRAM})
install(TARGETS compress RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
install(FILES ${MADE}/${COMPRESS_PROGRAM}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
  COMPONENT program)
install(FILES ${MADE}/recipe.schema.json DESTINATION ${SHARE} COMPONENT program)
install(FILES ${MADE}/completion.bash RENAME ${COMPRESS_PROGRAM}
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT program)
install(FILES ${MADE}/completion.zsh RENAME _${COMPRESS_PROGRAM}
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT program)
install(FILES ${MADE}/completion.fish RENAME ${COMPRESS_PROGRAM}.fish
  DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT program)
install(DIRECTORY recipes DESTINATION ${SHARE} COMPONENT program)
install(FILES README.md LICENSE CONTRIBUTING.md DESTINATION ${DOCS} COMPONENT program)
install(DIRECTORY docs DESTINATION ${DOCS} COMPONENT program)
