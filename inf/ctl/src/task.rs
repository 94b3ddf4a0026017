//! The scheduled task that rolls back, as the Task Scheduler reads it.

use std::time::SystemTime;

/// The task's name.
pub(crate) const NAME: &str = "ndkrocev2 rollback";

/// The task: as the system's own account, at this time and whenever Windows starts. A machine that crashed
/// comes up without the adapter.
///
/// See [the schema](https://learn.microsoft.com/windows/win32/taskschd/task-scheduler-schema).
pub(crate) fn definition(tool: &str, at: SystemTime) -> String {
    let at = humantime::format_rfc3339_seconds(at);
    let tool = tool.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        r#"<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <Triggers>
    <TimeTrigger><StartBoundary>{at}</StartBoundary></TimeTrigger>
    <BootTrigger></BootTrigger>
  </Triggers>
  <Principals>
    <Principal id="System">
      <UserId>S-1-5-18</UserId>
      <RunLevel>HighestAvailable</RunLevel>
    </Principal>
  </Principals>
  <Settings>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <StartWhenAvailable>true</StartWhenAvailable>
    <ExecutionTimeLimit>PT1H</ExecutionTimeLimit>
  </Settings>
  <Actions Context="System">
    <Exec><Command>"{tool}"</Command><Arguments>rollback</Arguments></Exec>
  </Actions>
</Task>
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The time is UTC and says so; a path with spaces is one word.
    #[test]
    fn the_task_says_when_and_what() {
        let text = definition(
            r"C:\Program Files\ndkrocev2\ndkrocev2ctl.exe",
            SystemTime::UNIX_EPOCH + Duration::from_secs(1_764_093_600),
        );
        assert!(text.contains("<StartBoundary>2025-11-25T18:00:00Z</StartBoundary>"), "{text}");
        assert!(
            text.contains(r#"<Command>"C:\Program Files\ndkrocev2\ndkrocev2ctl.exe"</Command>"#)
        );
    }
}
