//! Writes the man pages of `hermod` into a folder, one for each command: `manual FOLDER [YYYY-MM-DD]`.

use std::{env, error::Error, fs, io::Write as _, path::Path};

use clap::Command;
use clap_mangen::Man;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let folder = arguments.next().ok_or("usage: manual FOLDER [YYYY-MM-DD]")?;
    let date = arguments.next().unwrap_or_default();
    fs::create_dir_all(&folder)?;
    let mut program = hermod::cli::command().disable_help_subcommand(true);
    program.build();
    write_pages(&program, Path::new(&folder), &date)
}

/// Writes the page of a command, and those of its subcommands.
fn write_pages(command: &Command, folder: &Path, date: &str) -> Result<(), Box<dyn Error>> {
    let subcommands = || command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
    for subcommand in subcommands() {
        write_pages(subcommand, folder, date)?;
    }
    let version = env!("CARGO_PKG_VERSION");
    let man =
        Man::new(command.clone()).date(date).source(format!("hermod {version}")).manual("Hermod's commands");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if subcommands().next().is_some() {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(examples) = command.get_after_help() {
        write!(page, "{}", examples_section(&examples.to_string()))?;
    }
    if command.get_name() != "hermod" {
        writeln!(page, ".SH \"SEE ALSO\"\n.BR hermod (1)")?;
    }
    // Breaks beside a space break nothing, and `mandoc` warns of them.
    let page = String::from_utf8(page)?.replace("\n.br\n\n.br\n", "\n\n");
    fs::write(folder.join(man.get_filename()), page)?;
    Ok(())
}

/// The section of examples, whose lines stay as they are. The renderer of `clap_mangen` would fill them.
fn examples_section(text: &str) -> String {
    let lines = text.lines().filter(|line| *line != "Examples:").map(|line| {
        let line = line.trim_end().replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
        // A line that begins with a point would be a request.
        let guard = if line.starts_with('.') { "\\&" } else { "" };
        format!("{guard}{}\n", line.replace('`', "\\(ga").replace('^', "\\(ha").replace('~', "\\(ti"))
    });
    format!(".SH EXAMPLES\n.nf\n{}.fi\n", lines.collect::<String>())
}
