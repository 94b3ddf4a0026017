# Functions of PowerShell around ndkrocev2ctl.exe, which lies beside this file: it does the work, and says what it does.
#
# It has not run on Windows. Errors are thrown with the last line that the program said.

$ErrorActionPreference = 'Stop'
$Tool = Join-Path $PSScriptRoot 'ndkrocev2ctl.exe'

# Runs the program, and returns its lines. Exit codes: 0, done; 3010, done but for a restart of Windows.
function Invoke-Tool([string[]] $Arguments, [int[]] $Accepts = @(0, 3010)) {
    # PowerShell 5.1 takes a line on stderr for an error, which would end this before the exit code is known, and the
    # program's UTF-8 for the console's code page.
    $ErrorActionPreference = 'Continue'
    # Without a console, as in a remote session, there is no encoding to set.
    $Encoding = [Console]::OutputEncoding
    try { [Console]::OutputEncoding = New-Object System.Text.UTF8Encoding $false } catch { $Encoding = $null }
    try { $Lines = @(& $Tool @Arguments 2>&1 | ForEach-Object { "$_" }) }
    finally { if ($Encoding) { [Console]::OutputEncoding = $Encoding } }
    if ($LASTEXITCODE -notin $Accepts) { throw "ndkrocev2ctl ends with $LASTEXITCODE: $($Lines | Select-Object -Last 1)" }
    if ($LASTEXITCODE -eq 3010) { Write-Warning 'Windows is to be restarted before all of it is so.' }
    $Lines
}

# An argument and its values, where there are any.
function Get-Argument([string] $Name, [string[]] $Values) {
    foreach ($Value in $Values) { if ($Value) { $Name; $Value } }
}

<#
.SYNOPSIS
What is installed, and how it fares: an object as ndkrocev2ctl.schema.json describes it.
#>
function Get-Ndkrocev2 {
    [CmdletBinding()] param()
    Invoke-Tool @('status', '--json') | Out-String | ConvertFrom-Json
}

<#
.SYNOPSIS
The checks from the signature to a copy over SMB, an object each: check, adapter, outcome, says, mends. None where nothing is installed.
#>
function Test-Ndkrocev2 {
    [CmdletBinding()] param([string] $Name, [string] $Package, [string] $Peer, [string] $Share)
    $Arguments = @('verify', '--json') + @(Get-Argument '--name' $Name) + @(Get-Argument '--package' $Package) +
        @(Get-Argument '--peer' $Peer) + @(Get-Argument '--share' $Share)
    (Invoke-Tool $Arguments @(0, 1) | Out-String | ConvertFrom-Json).checks
}

<#
.SYNOPSIS
Installs an adapter on top of a NIC, and keeps it as soon as its link is up; whatever fails, all is undone.
#>
function Install-Ndkrocev2 {
    [CmdletBinding(SupportsShouldProcess)] param(
        [Parameter(Mandatory)] [string] $Nic,
        [ValidateSet('own', 'inherit', 'share')] [string] $Mode = 'own',
        [string] $Name = 'RoCEv2', [string] $Package, [string[]] $Address, [string[]] $Gateway, [string[]] $Dns
    )
    $Arguments = @('install', '--nic', $Nic, '--mode', $Mode, '--name', $Name, '--yes') +
        @(Get-Argument '--package' $Package) + @(Get-Argument '--address' $Address) +
        @(Get-Argument '--gateway' $Gateway) + @(Get-Argument '--dns' $Dns)
    if (-not $PSCmdlet.ShouldProcess($Nic, 'Install')) { $Arguments += '--dry-run' }
    Invoke-Tool $Arguments
}

<#
.SYNOPSIS
Exchanges the driver package below the adapters, and keeps it as soon as their links are up; else the old one comes back.
#>
function Update-Ndkrocev2 {
    [CmdletBinding()] param([string] $Package)
    Invoke-Tool (@('upgrade', '--yes') + @(Get-Argument '--package' $Package))
}

<#
.SYNOPSIS
Removes an adapter, or all.
#>
function Uninstall-Ndkrocev2 {
    [CmdletBinding(SupportsShouldProcess)] param([string] $Name)
    if ($PSCmdlet.ShouldProcess($(if ($Name) { $Name } else { 'all adapters' }), 'Uninstall')) {
        Invoke-Tool (@('uninstall') + @(Get-Argument '--name' $Name))
    }
}

Export-ModuleMember -Function Get-Ndkrocev2, Test-Ndkrocev2, Install-Ndkrocev2, Update-Ndkrocev2, Uninstall-Ndkrocev2
