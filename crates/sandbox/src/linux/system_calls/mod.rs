//! seccomp: which system calls this process may make.
//!
//! A call that is on no list is refused. The lists are in [`table`], conditions on arguments in [`rules`], and how a
//! refusal gets its name onto the standard error in [`naming`].

mod naming;
mod rules;
mod table;

use std::collections::BTreeMap;
use std::io;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch, apply_filter};

use crate::{Error, Name, Policy, Report, Result, State};
use rules::Rules;
use table::Call;

/// Installs the filters. Nothing but what they allow can be done after this.
pub(super) fn restrict(policy: &Policy, report: &mut Report) -> Result<()> {
    // A program that this process starts does not have the handler of SIGSYS: it could not name a refused call, and
    // would die of the signal.
    let named = policy.execute.is_empty();
    let mut allowed = rules::conditional(policy, report);
    for list in [table::ALLOWED, &[table::ABSENT, table::QUIET]] {
        allowed.extend(without_conditions(list));
    }
    let refusal = if named { SeccompAction::Trap } else { SeccompAction::Errno(libc::EPERM as u32) };
    let mut killed: Rules = BTreeMap::from([(naming::END, Vec::new())]);
    if !named {
        killed.extend(without_conditions(table::KILLED));
    }
    // Of several filters the strictest answer counts: ending the process, then the signal, then an error. So the filter
    // that raises signals allows the calls that another filter answers with an error.
    let mut quiet = rules::starting(policy);
    allowed.extend(without_conditions(&[table::STARTING]));
    quiet.extend(without_conditions(&[table::QUIET]));
    let filters = [
        filter(killed, SeccompAction::Allow, SeccompAction::KillProcess),
        filter(without_conditions(&[table::ABSENT]).collect(), SeccompAction::Allow, error(libc::ENOSYS)),
        filter(quiet, SeccompAction::Allow, error(libc::EPERM)),
        filter(allowed, refusal, SeccompAction::Allow),
    ];
    if named {
        naming::prepare().map_err(Error::at("the handler of SIGSYS"))?;
    }
    for filter in filters {
        match apply_filter(&filter?) {
            Ok(()) => {}
            Err(seccompiler::Error::Seccomp(why))
                if matches!(why.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) =>
            {
                report.add(
                    Name::SystemCalls,
                    State::NotAvailable,
                    "this kernel is built without filters of system calls",
                );
                return Ok(());
            }
            Err(why) => return Err(broken(why)),
        }
    }
    let how = if named { "named on the standard error" } else { "not named, since programs may be started" };
    report.add(Name::SystemCalls, State::Provided, format!("all but those that Python needs are refused, and {how}"));
    Ok(())
}

fn without_conditions(lists: &[&[Call]]) -> impl Iterator<Item = (i64, Vec<SeccompRule>)> {
    lists.iter().copied().flatten().map(|&(_, number)| (number, Vec::new()))
}

fn error(number: i32) -> SeccompAction {
    SeccompAction::Errno(number as u32)
}

/// Compiles a filter. Every filter begins with a check of the processor's architecture: calls of another architecture,
/// such as 32-bit calls by `int 0x80`, end the process.
fn filter(rules: Rules, others: SeccompAction, listed: SeccompAction) -> Result<BpfProgram> {
    let processor = TargetArch::try_from(std::env::consts::ARCH).map_err(broken)?;
    SeccompFilter::new(rules, others, listed, processor).and_then(BpfProgram::try_from).map_err(broken)
}

fn broken(why: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::System { what: "seccomp", why: io::Error::other(why) }
}
