# DF_SELF_CONTAINED, for wheels: the extension and the program need no library beyond glibc's and
# libgcc_s, and export nothing that another library of the process could bind to (record 0034).
set(DF_FMT fmt::fmt)
if(DF_SELF_CONTAINED)
  set(DF_FMT fmt::fmt-header-only)  # Debian has no libfmt.a
endif()

# df_self_contained(target script): links it so; the script names the symbols that it exports.
function(df_self_contained target script)
  if(NOT DF_SELF_CONTAINED)
    return()
  endif()
  # libgcc_s stays shared: libgcc_eh.a needs glibc 2.35, and every Linux with glibc has libgcc_s.
  target_link_options(${target} PRIVATE -static-libstdc++ -Wl,--as-needed -Wl,--gc-sections
    -Wl,-z,relro,-z,now,-z,noexecstack -Wl,--exclude-libs,ALL -Wl,--version-script=${script})
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${script})
endfunction()
