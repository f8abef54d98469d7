//! The guest's file system: this program as `/init`, the libraries it maps, the modules its kernel needs, and the plan.

use std::{
    collections::BTreeSet,
    error::Error,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};

use crate::{
    disk::IMAGE_PATH,
    guest::{MODULES_PATH, PLAN_PATH, Plan},
    kernel_image::KernelImage,
    module,
    newc::{DeviceNumber, Newc},
};

/// The archive is padded with zeros to a multiple of this, which the kernel skips: plans of slightly different length then
/// give the same layout of the guest's memory.
const PADDING: usize = 64 << 10;
/// Builds the archive. The same program, kernel and plan give the same bytes.
///
/// `image`: what is to be written to the guest's disk, packed.
pub(crate) fn build(
    kernel: &KernelImage,
    modules: &[String],
    plan: &Plan,
    image: Option<&[u8]>,
) -> Result<Vec<u8>, String> {
    let mut archive = Newc::new();
    pack(kernel, modules, plan, image, &mut archive).map_err(|problem| format!("building the initramfs: {problem}"))?;
    // Compressed, because the boot loader's copy is not managed memory until it is unpacked: on a small machine eight
    // megabytes more of it would move the automatic min_free_kbytes by one percent. Xz takes a fifth less than gzip
    // (CONFIG_RD_GZIP, on by default), but unpacking it was half of a translated guest's boot.
    let mut compressed = GzEncoder::new(Vec::new(), Compression::default());
    let written = compressed.write_all(&archive.finish()).and_then(|()| compressed.finish());
    let mut archive = written.map_err(|error| format!("compressing the initramfs: {error}"))?;
    archive.resize(archive.len().next_multiple_of(PADDING), 0);
    Ok(archive)
}

fn pack(
    kernel: &KernelImage,
    modules: &[String],
    plan: &Plan,
    image: Option<&[u8]>,
    archive: &mut Newc,
) -> Result<(), Box<dyn Error>> {
    for directory in ["dev", "proc", "sys", "tmp", MODULES_PATH] {
        archive.directory(directory, 0o755)?;
    }
    archive.char_device("dev/console", 0o600, DeviceNumber::CONSOLE)?;
    archive.char_device("dev/null", 0o666, DeviceNumber::NULL)?;
    let program = read(Path::new("/proc/self/exe"))?;
    for library in libraries(&program)? {
        let name = library.strip_prefix("/").unwrap_or(&library).to_string_lossy().into_owned();
        archive.file(&name, 0o755, &read(&library)?)?;
        for link in names_of(&library) {
            let (link, name) = (link.to_string_lossy(), format!("/{name}"));
            archive.symlink(link.trim_start_matches('/'), &name)?;
        }
    }
    archive.file("init", 0o755, &program)?;
    for (place, module) in module::of_kernel(kernel, modules)?.into_iter().enumerate() {
        archive.file(&format!("{MODULES_PATH}/{place:02}-{}.ko", module.name), 0o644, &module.bytes)?;
    }
    if let Some(image) = image {
        archive.file(IMAGE_PATH, 0o644, image)?;
    }
    archive.file(PLAN_PATH, 0o644, &serde_json::to_vec(plan)?)?;
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The interpreter that the program names, and every library that this process has mapped, at the paths where the
/// interpreter looks for them.
fn libraries(program: &[u8]) -> Result<BTreeSet<PathBuf>, String> {
    let maps = fs::read_to_string("/proc/self/maps").map_err(|error| format!("/proc/self/maps: {error}"))?;
    let program_path = fs::read_link("/proc/self/exe").map_err(|error| format!("/proc/self/exe: {error}"))?;
    let mapped = maps.lines().filter_map(|line| Some(PathBuf::from(&line[line.find('/')?..])));
    Ok(mapped.filter(|path| *path != program_path && is_elf(path)).chain(interpreter(program)?).collect())
}

/// Symbolic links beside a library that lead to it: the interpreter looks for `libc.so.6`, the file may be `libc-2.31.so`.
fn names_of(library: &Path) -> Vec<PathBuf> {
    let Some(entries) = library.parent().and_then(|directory| fs::read_dir(directory).ok()) else { return Vec::new() };
    let links = entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_symlink());
    let mut names: Vec<_> = links.filter(|link| fs::canonicalize(link).is_ok_and(|file| file == library)).collect();
    names.sort();
    names
}

fn is_elf(path: &Path) -> bool {
    fs::File::open(path).is_ok_and(|mut file| {
        let mut magic = [0; 4];
        std::io::Read::read_exact(&mut file, &mut magic).is_ok() && magic == *b"\x7fELF"
    })
}

fn interpreter(program: &[u8]) -> Result<Option<PathBuf>, String> {
    let file = ElfFile64::<object::Endianness>::parse(program).map_err(|error| format!("this program: {error}"))?;
    let endian = file.endian();
    let headers = file.elf_header().program_headers(endian, program).map_err(|error| error.to_string())?;
    let path = headers.iter().find_map(|header| header.interpreter(endian, program).ok().flatten());
    Ok(path.map(|path| PathBuf::from(String::from_utf8_lossy(path).into_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_needs_an_interpreter_and_a_c_library() {
        let program = read(Path::new("/proc/self/exe")).unwrap();
        let libraries = libraries(&program).unwrap();
        assert!(libraries.contains(&interpreter(&program).unwrap().unwrap()));
        assert!(libraries.iter().any(|path| path.to_string_lossy().contains("libc.so")), "{libraries:?}");
    }
}
