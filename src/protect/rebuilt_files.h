// The files of one checkpoint, calculated from those of other nodes and from parity: a Vfs that
// only reads. A restore takes it like one more tier, behind those that have the files themselves.
//
// A range of a file is calculated from pieces of its stripes, each of which is checked against its
// own file's header first: a piece that does not verify counts as lost, like one that can't be
// read. The bytes of the file itself are never read, so a file that is there and damaged is
// calculated as well as one that is gone. Nothing is kept between two reads.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "format/records.h"
#include "storage/vfs.h"

namespace deepfreeze {

// `pieces` has the checkpoint's files, those that are left, by their paths in the run; it is
// borrowed. `parity`: the names of the parity files among them. One that does not verify, or does
// not agree with most of its group, counts as lost: so there is no error. Reads the headers of the
// parity files; those of a group's other files once one of them is wanted. open_read() of a file
// that no group has: kNotFound. A read: kIncomplete if too few pieces are left; it names them.
// Either: the error of a piece that may be good (may_have_good_copy()) counts more.
[[nodiscard]] std::unique_ptr<Vfs> open_rebuilt_files(Vfs& pieces, const Manifest& manifest,
                                                      std::span<const std::string> parity);

}  // namespace deepfreeze
