# What install.ps1 and uninstall.ps1 share: the names, and how to find what is installed.
# Nothing here reads a program's words, which Windows translates: registry, CIM and exit codes only.

$ServiceName = 'ndkrocev2'
$ImageName   = 'ndkrocev2.sys'
$HardwareId  = 'root\ndkrocev2'
$ComponentId = 'ndkrocev2_lower'
$VnicInf     = 'ndkrocev2'
$LowerInf    = 'ndkrocev2-lower'
# Beside the scripts, and kept where the system needs it when they are gone.
$CounterManifest = Join-Path $PSScriptRoot 'ndkrocev2.man'
$StateFile   = Join-Path $env:ProgramData 'ndkrocev2\install.json'

# What the processor is called: in a PE header, by stampinf, as a folder of the WDK, by inf2cat.
function Get-Machine {
    # Not PROCESSOR_ARCHITECTURE: that is the process', which may be emulated.
    $key = 'HKLM:\SYSTEM\CurrentControlSet\Control\Session Manager\Environment'
    $name = (Get-ItemProperty $key).PROCESSOR_ARCHITECTURE
    switch ($name) {
        'AMD64' {
            return @{ Name = 'x64'; Code = 0x8664; Stamp = 'amd64'; Tools = '\\x64$'; Catalog = '10_X64' }
        }
        'ARM64' {
            $catalog = 'Server10_ARM64'
            return @{ Name = 'ARM64'; Code = 0xAA64; Stamp = 'arm64'; Tools = '\\arm64$'; Catalog = $catalog }
        }
    }
    throw "The driver exists for x64 and ARM64, not for $name."
}

# Does one thing, unless -WhatIf forbids it, and remembers how to undo it, also if it stops half way.
# $Undo runs when the caller's variables are gone, and finds what it needs of them in $With.
# $PSCmdlet is the calling script's: this function is deliberately not an advanced one.
$UndoSteps = New-Object System.Collections.Stack
function Invoke-Step([string] $Target, [string] $Action, [scriptblock] $Do, [scriptblock] $Undo, $With) {
    if (-not $PSCmdlet.ShouldProcess($Target, $Action)) { return }
    Write-Host ('{0}: {1}' -f $Action, $Target)
    if ($Undo) { $UndoSteps.Push(@{ Target = $Target; Action = $Action; Undo = $Undo; With = $With }) }
    & $Do | Out-Host
}

# The steps done so far, the last one first. A step that cannot be undone does not stop the others.
function Undo-Steps {
    while ($UndoSteps.Count -gt 0) {
        $step = $UndoSteps.Pop()
        Write-Host ('Undo: {0}: {1}' -f $step.Action, $step.Target)
        try { & $step.Undo $step.With | Out-Host }
        catch { Write-Warning ('Not undone: {0}' -f $_.Exception.Message) }
    }
}

# Runs a program and returns its output as text; throws if its exit code is not one of $Accept.
function Invoke-Native([string] $File, [string[]] $Arguments, [int[]] $Accept = @(0)) {
    # PowerShell 5.1 makes an error of the first line on standard error if the preference is Stop.
    $ErrorActionPreference = 'Continue'
    $output = & $File @Arguments 2>&1 | Out-String
    $code = $LASTEXITCODE
    if ($Accept -notcontains $code) {
        throw ("{0} {1}`nexit code {2}`n{3}" -f $File, ($Arguments -join ' '), $code, $output)
    }
    if ($code -eq 3010) { Write-Warning 'Windows asks for a restart to finish this step.' }
    return $output
}

# The device nodes of the virtual adapter, also those whose driver did not start.
function Get-VnicDevice {
    Get-PnpDevice -PresentOnly | Where-Object { $_.HardwareID -contains $HardwareId }
}

# The network adapter on such a device node.
function Get-Vnic {
    $ids = @(Get-VnicDevice | ForEach-Object { $_.InstanceId })
    Get-NetAdapter -IncludeHidden -ErrorAction SilentlyContinue |
        Where-Object { $ids -contains $_.PnPDeviceID } | Select-Object -First 1
}

# Whether the lower edge is among the installed protocols.
function Test-LowerEdge {
    $class = 'HKLM:\SYSTEM\CurrentControlSet\Control\Network\{4d36e975-e325-11ce-bfc1-08002be10318}'
    $ids = @(Get-ChildItem $class -ErrorAction SilentlyContinue |
            ForEach-Object { $_.GetValue('ComponentId') })
    return $ids -contains $ComponentId
}

# The packages in the driver store that came from our INFs; .Driver is the published name, oemN.inf.
function Get-StagedDriver {
    Get-WindowsDriver -Online | Where-Object {
        @("$VnicInf.inf", "$LowerInf.inf") -contains (Split-Path -Leaf $_.OriginalFileName)
    }
}

# The first of $Names that can be run: by its full name, from the PATH, or from the newest WDK.
function Find-Tool([string[]] $Names) {
    foreach ($name in $Names) {
        $command = Get-Command $name -CommandType Application -ErrorAction SilentlyContinue |
            Select-Object -First 1
        if ($command) { return $command.Source }
    }
    # Windows installs devices for programs of its own processor only. Inf2cat has one build for all.
    $folder = (Get-Machine).Tools
    $kits = Join-Path ${env:ProgramFiles(x86)} 'Windows Kits\10'
    foreach ($name in $Names) {
        $found = Get-ChildItem -Path (Join-Path $kits 'bin'), (Join-Path $kits 'Tools') -Filter $name `
                -Recurse -File -ErrorAction SilentlyContinue |
            Where-Object { $_.DirectoryName -match $folder -or $name -eq 'inf2cat.exe' } |
            Sort-Object FullName -Descending | Select-Object -First 1
        if ($found) { return $found.FullName }
    }
    return $null
}

function Remove-VnicDevice([string] $InstanceId) {
    # pnputil learned to remove devices in build 19041; Server 2019 needs devcon.
    if ([Environment]::OSVersion.Version.Build -ge 19041) {
        Invoke-Native 'pnputil.exe' @('/remove-device', $InstanceId) @(0, 3010)
        return
    }
    $devcon = Find-Tool @('devcon.exe')
    if (-not $devcon) {
        throw "No devcon.exe. Remove '$InstanceId' in the Device Manager, then run the script again."
    }
    # devcon says 1 where a restart is needed.
    Invoke-Native $devcon @('remove', "@$InstanceId") @(0, 1)
}

function Edit-CertificateStore([string] $Store, [string] $Method, $Certificate) {
    $opened = New-Object System.Security.Cryptography.X509Certificates.X509Store($Store, 'LocalMachine')
    $opened.Open('ReadWrite')
    try { $opened.$Method($Certificate) } finally { $opened.Close() }
}
